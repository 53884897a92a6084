"""Each statement of the lecture matters: a list of errors in it, and the tests that notice each.

python tests/mutants.py [WORD ...]     tries all mutants, or those whose place or description has one of the words

Every mutant is made in a copy of the repository, where the tests that should catch it then run. The script prints
which were caught and exits with code 1 if any survives. All of them take about 15 minutes on two cores, as most
start their own ranks.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
MODULES = ["lecture_07.py", "gpu_util.py", "lecture_util.py", "rank_util.py", "spawn_util.py", "server_util.py"]
COPIED = [*MODULES, "pyproject.toml", "tests", "images", "var", "trace_page"]
NUM_WORKERS = 2
TIMEOUT = 300


@dataclass(frozen=True)
class Mutant:
    """One error: in the source of function or class `place`, `old` becomes `new`, and `tests` must fail."""

    place: str
    old: str
    new: str
    tests: str
    """pytest's node ids below tests/, without the directory and .py, separated by spaces."""
    file: str = "lecture_07.py"

    def __str__(self) -> str:
        return f"{self.place}: {one_line(self.old)} -> {one_line(self.new)}"

    @property
    def node_ids(self) -> list[str]:
        """As pytest takes them."""
        parts = (node.partition("::") for node in self.tests.split())
        return [f"tests/{module}.py{colons}{test}" for module, colons, test in parts]

    def span(self, source: str) -> tuple[int, int]:
        """Where the old text begins and ends in the source. Raises ValueError unless it is there exactly once."""
        heads = [head for head in (f"def {self.place}(", f"class {self.place}:") if f"\n{head}" in source]
        if len(heads) != 1:
            raise ValueError(f"{self.file} has not exactly one {self.place}")
        begin = source.index(f"\n{heads[0]}") + 1
        lines = source[begin:].splitlines(keepends=True)
        body = [lines[0]]
        for line in lines[1:]:
            if line.strip() and not line.startswith((" ", ")")):
                break
            body.append(line)
        text = "".join(body)
        if text.count(self.old) != 1:
            raise ValueError(f"{self}: the old text is there {text.count(self.old)} times, and should be once")
        start = begin + text.index(self.old)
        return start, start + len(self.old)

    def apply(self, source: str) -> str:
        """The source with the error in it."""
        start, end = self.span(source)
        return source[:start] + self.new + source[end:]


def one_line(text: str) -> str:
    """The text, shortened to fit a line."""
    return textwrap.shorten(repr(" ".join(text.split())), 60)


def mutants_of(place: str, tests: str, *changes: tuple[str, str], file: str = "lecture_07.py") -> list[Mutant]:
    """Mutants of one function that the same tests catch."""
    return [Mutant(place, old, new, tests, file) for old, new in changes]


TELLING = [
    *mutants_of(
        "collective_operations",
        "test_collectives::test_written_outputs_follow_from_the_written_inputs "
        "test_collectives::test_blocks_are_labelled_and_show_each_rank_once",
        ("torch.tensor([2., 6., 10., 14.])", "torch.tensor([2., 6., 10., 15.])"),
        ("torch.tensor([12., 13., 14., 15.])", "torch.tensor([12., 13., 14., 16.])"),
        ("torch.tensor([14.])", "torch.tensor([15.])"),
        ("rank2 = torch.tensor([14.])  # @inspect rank2", "rank2 = torch.tensor([14.])  # @inspect rank1"),
        ("rank3 = torch.tensor([3., 7., 11., 15.])", "rank2 = torch.tensor([3., 7., 11., 15.])"),
    ),
    *mutants_of(
        "collective_operations",
        "test_narration test_told_figures",
        ('image("images/gather.png", width=520)', 'image("images/scatter.png", width=520)'),
        ('image("images/ranks.png", width=520)', 'image("images/ranks.png", width=640)'),
        ("how many ranks there are: 4.", "how many ranks there are: 5."),
    ),
    *mutants_of(
        "main",
        "test_narration test_told_figures",
        ("HBM is 4.4 times", "HBM is 9 times"),
        ("NVLink 18 times", "NVLink 9 times"),
        ("0.1, a port of 400 Gb/s", "0.05, a port of 400 Gb/s"),
        ("its 256 KB", "its 228 KB"),
        ("| 1.8, a B200", "| 0.9, a B200"),
        ("132 SMs", "144 SMs"),
        ("30 TB/s. 8 TB/s", "33 TB/s. 8 TB/s"),
        (
            "| 8, a B200 ([Blackwell tuning guide](https://docs.nvidia.com/cuda/blackwell-tuning-guide/))",
            "| 8, a B200",
        ),
        ("1.12 TB", "0.28 TB"),
        ("12 $d^2$ weights", "8 $d^2$ weights"),
        ("2500 FLOP for each byte", "1250 FLOP for each byte"),
        ("45 000 FLOP for each byte", "22 500 FLOP for each byte"),
        ("the backward pass does 4 FLOP", "the backward pass does 2 FLOP"),
        ("$d/(n - 1)$ FLOP a byte", "$d/n$ FLOP a byte"),
        ("$d k$ FLOP a byte", "$2 d k$ FLOP a byte"),
        ("$d$ = 7500", "$d$ = 10 000"),
        ("| 6 layers", "| 5 layers"),
        ("beyond 2048 rows", "beyond 1024 rows"),
        ("https://crfm.stanford.edu/2023", "https//crfm.stanford.edu/2023"),
    ),
    *mutants_of(
        "hardware",
        "test_narration test_told_figures",
        ("0.45 TB/s each way", "0.9 TB/s each way"),
        ("14.4 TB/s together", "7.2 TB/s together"),
        ("72 GPUs in one", "64 GPUs in one"),
        ("18 compute trays", "9 compute trays"),
        ("24 000 H100s", "16 000 H100s"),
        ('article_link("https://en.wikipedia.org/wiki/PCI_Express")', "pass"),
    ),
    *mutants_of(
        "torch_distributed",
        "test_narration test_told_figures",
        ("`reduce_scatter_single` was `reduce_scatter_tensor`", "`reduce_scatter_single` was `reduce_scatter_list`"),
        ("torch 2.8 or newer", "torch 2.7 or newer"),
    ),
    *mutants_of(
        "benchmarking",
        "test_narration test_told_figures",
        ("393 to 457", "366 to 426"),
        ("2.4 to 2.6 ms", "1.2 to 1.3 ms"),
        ("2²² on CPUs", "2²⁰ on CPUs"),
        ("$2(n - 1)/n", "$(n - 1)/n"),
        ("0.15 µs", "1.5 µs"),
        ("2.6 µs", "0.26 µs"),
        ("gradients of 4.2 MB", "gradients of 8.4 MB"),
        ("526 GB/s is more", "457 GB/s is more"),
        ("450 (H100)", "900 (H100)"),
        ("a factor of 2", "a factor of 3"),
    ),
    *mutants_of(
        "pipeline_parallelism",
        "test_narration test_told_figures",
        ("(p - 1)/(m + p - 1)", "(p - 1)/m"),
        ("1/5 with 4", "1/4 with 4"),
        ("1/33 with 32", "1/32 with 32"),
        ("at most $p$ micro", "at most $m$ micro"),
        ("activations, 32 rows", "activations, 64 rows"),
        ("num_micro_batches=4", "num_micro_batches=8"),
    ),
]

COLLECTIVES = mutants_of(
    "collective_operations_main",
    "test_collectives::test_demo_prints_what_each_collective_makes_of_the_tensors_of_all_ranks "
    "test_collectives::test_demo_waits_for_all_ranks_before_it_prints_what_it_will_communicate",
    ("setup(rank, world_size)", "setup(world_size, rank)"),
    ("device = cuda_if_available(rank)", "device = cuda_if_available(0)"),
    ("dist.barrier()  # wait for all ranks, so that the log is easier to read", "pass"),
    ("device=device) + rank  # both input and output", "device=device)  # both input and output"),
    ('print(f"Rank {rank} [before all-reduce]: {data}")', "pass"),
    ("dist.all_reduce(data, op=dist.ReduceOp.SUM)", "dist.all_reduce(data, op=dist.ReduceOp.MAX)"),
    ("[after all-reduce]", "[before all-reduce]"),
    ("# Reduce-scatter\n    dist.barrier()\n", "# Reduce-scatter\n"),
    ("device=device) + rank  # (world_size)", "device=device)  # (world_size)"),
    ("dtype=torch.float32, ", ""),
    ("torch.zeros(1,", "torch.ones(1,"),
    ("[before reduce-scatter]: input = {input}, output = {output}", "[before reduce-scatter]: input = {input}"),
    ("(output, input, op=dist.ReduceOp.SUM)", "(output, input, op=dist.ReduceOp.MAX)"),
    ("[after reduce-scatter]: input = {input}, output", "[after reduce-scatter]: input = {output}, output"),
    ("# All-gather\n    dist.barrier()\n", "# All-gather\n"),
    ("input = output  # the result", "input = output + 1  # the result"),
    ("torch.zeros(world_size,", "torch.ones(world_size,"),
    ("Rank {rank} [before all-gather]", "Rank 0 [before all-gather]"),
    ("dist.all_gather_single(output, input)", "pass"),
    ('print(f"Rank {rank} [after all-gather]: input = {input}, output = {output}")', "pass"),
    ("cleanup()", "pass"),
)  # fmt: skip

IN_BOTH = [
    ("setup(rank, world_size)", "setup(0, world_size)"),
    ("render_duration(duration)", "render_duration(start_time)"),
    ("{world_size}, num_elements={num_elements}) took", "{num_elements}, num_elements={world_size}) took"),
    ("bandwidth = sent_bytes / duration", "bandwidth = num_bytes / duration"),
    ("(world_size - 1) / world_size", "(world_size + 1) / world_size"),
    ("/ world_size  #", "/ 4  #"),
    ("element_size()", "dim()"),
    ("bandwidth / 1e9", "bandwidth / 2**30"),
    ("/ 1e9:.4g}", "/ 1e9:.2f}"),
    ("cleanup()", "pass"),
]
BENCHMARKS = [
    *mutants_of(
        "all_reduce",
        "test_bandwidth",
        *IN_BOTH,
        ("torch.randn(num_elements", "torch.zeros(num_elements"),
        ("torch.randn(num_elements", "torch.randn(2 * num_elements"),
        ("cuda_if_available(rank)", "cuda_if_available(0)"),
        ("# Warm up\n    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)", "# Warm up"),
        ("SUM)\n    torch.cuda.synchronize()  # wait", "MAX)\n    torch.cuda.synchronize()  # wait"),
        ("torch.cuda.synchronize()  # wait for this GPU's kernels", "pass  # wait for this GPU's kernels"),
        ("num_calls = 5", "num_calls = 1"),
        ("dist.barrier()            # wait for the other ranks", "pass"),
        ("start_time = time.perf_counter()\n", "start_time = 0.0\n"),
        ("        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)", "        pass"),
        (
            "        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)",
            "        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)",
        ),
        ("range(num_calls)", "range(1, num_calls)"),
        ("    torch.cuda.synchronize()\n    dist.barrier()\n    duration", "    dist.barrier()\n    duration"),
        ("    dist.barrier()\n    duration", "    duration"),
        (") / num_calls", ")"),
        ("num_bytes * 2 *", "num_bytes *"),
        ("perf_counter() - start_time", "perf_counter() - 2 * start_time"),
        ("Rank {rank}: all_reduce measured", "Rank 0: all_reduce measured"),
    ),
    *mutants_of(
        "reduce_scatter",
        "test_bandwidth",
        *IN_BOTH,
        ("torch.randn(world_size * num_elements", "torch.zeros(world_size * num_elements"),
        ("cuda_if_available(rank))  # a piece", "cuda_if_available(0))  # a piece"),
        ("cuda_if_available(rank))  # this", "cuda_if_available(0))  # this"),
        ("torch.empty(num_elements,", "torch.empty(num_elements, dtype=torch.float64,"),
        ("# Warm up\n    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)", "# Warm up"),
        ("    torch.cuda.synchronize()\n    dist.barrier()\n\n", "    dist.barrier()\n\n"),
        (
            "SUM)\n    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)",
            "SUM)\n    dist.reduce_scatter_single(output, input, op=dist.ReduceOp.MAX)",
        ),
        ("    dist.barrier()\n\n", "\n"),
        ("start_time = time.perf_counter()\n", "start_time = 0.0\n"),
        ("num_calls = 5", "num_calls = 1"),
        ("range(num_calls)", "range(1, num_calls)"),
        (") / num_calls", ")"),
        (
            "        dist.reduce_scatter_single(output, input, op=dist.ReduceOp.SUM)",
            "        dist.reduce_scatter_single(output, input, op=dist.ReduceOp.MAX)",
        ),
        ("    torch.cuda.synchronize()\n    dist.barrier()\n    duration", "    dist.barrier()\n    duration"),
        ("    dist.barrier()\n    duration", "    duration"),
        ("num_bytes * (", "num_bytes * 2 * ("),
        ("input.numel()", "output.numel()"),
        ("perf_counter() - start_time", "perf_counter() + start_time"),
        ("Rank {rank}: reduce_scatter measured", "Rank 0: reduce_scatter measured"),
    ),
]  # fmt: skip

STRATEGIES = [
    *mutants_of(
        "data_parallelism_main",
        "test_data_parallelism",
        ("setup(rank, world_size)", "setup(0, world_size)"),
        ("batch_size, num_dim = data.shape", "num_dim, batch_size = data.shape"),
        ("int_divide(batch_size, world_size)", "batch_size // world_size"),
        ("start_index = rank *", "start_index = (world_size - 1 - rank) *"),
        ("start_index + local_batch_size", "start_index + local_batch_size - 1"),
        ("data[start_index:end_index]", "data[:local_batch_size]"),
        ("cuda_if_available(rank)", "cuda_if_available(0)"),
        ("get_init_params(num_dim, num_dim, rank)", "get_init_params(num_dim, num_dim, 0)"),
        ("range(num_layers)", "range(num_layers - 1)"),
        ("AdamW(", "Adam("),
        ("lr=1e-3", "lr=1e-2"),
        ("range(num_steps)", "range(1, num_steps + 1)"),
        ("x = data\n", "x = data + 1\n"),
        ("for param in params:\n            x =", "for param in params[::-1]:\n            x ="),
        ("x @ param)", "data @ param)"),
        ("x @ param)", "x @ param.T)"),
        ("x @ param)", "x @ param, approximate='tanh')"),
        ("x.square().mean()", "x.square().sum()"),
        ("loss.backward()", "pass"),
        ("for param in params:\n            dist", "for param in params[1:]:\n            dist"),
        ("ReduceOp.AVG", "ReduceOp.SUM"),
        ("optimizer.step()", "pass"),
        ("optimizer.zero_grad()", "pass"),
        ("step = {step}", "step = {step + 1}"),
        ("summarize_tensor(param) for param in params", "summarize_tensor(param) for param in params[:1]"),
        ("cleanup()", "pass"),
    ),
    *mutants_of(
        "tensor_parallelism_main",
        "test_tensor_parallelism",
        ("setup(rank, world_size)", "setup(0, world_size)"),
        ("data = data.to(cuda_if_available(rank))", "data = data.to(cuda_if_available(0))"),
        ("data.to(cuda_if_available(rank))", "data.chunk(world_size)[0]"),
        ("batch_size, num_dim = data.shape", "num_dim, batch_size = data.shape"),
        ("int_divide(num_dim, world_size)", "num_dim // world_size"),
        ("local_num_dim, rank)", "local_num_dim, 0)"),
        ("get_init_params(num_dim, local_num_dim", "get_init_params(local_num_dim, num_dim"),
        ("range(num_layers)", "range(num_layers - 1)"),
        ("x = data\n", "x = -data\n"),
        ("in params:", "in reversed(params):"),
        ("x @ param)", "data @ param)"),
        ("F.gelu(x @ param)", "(x @ param)"),
        ("roll(rank, dims=1)", "roll(0, dims=1)"),
        ("roll(rank, dims=1)", "roll(rank, dims=0)"),
        ("range(world_size)]  # room", "range(world_size - 1)]  # room"),
        ("dist.all_gather(activations, x)", "pass"),
        ("dim=1", "dim=0"),
        ("torch.cat(activations,", "torch.cat(activations[::-1],"),
        ("summarize_tensor(x)", "summarize_tensor(data)"),
        ("cleanup()", "pass"),
    ),
    *mutants_of(
        "pipeline_parallelism_main",
        "test_pipeline_parallelism",
        ("setup(rank, world_size)", "setup(0, world_size)"),
        ("device = cuda_if_available(rank)", "device = cuda_if_available(0)"),
        ("batch_size, num_dim = data.shape", "num_dim, batch_size = data.shape"),
        ("int_divide(num_layers, world_size)", "num_layers // world_size"),
        ("get_init_params(num_dim, num_dim, rank)", "get_init_params(num_dim, num_dim, 0)"),
        ("range(local_num_layers)", "range(local_num_layers - 1)"),
        ("int_divide(batch_size, num_micro_batches)", "batch_size // num_micro_batches"),
        ("if rank == 0:", "if rank >= 0:"),
        ("dim=0)", "dim=1)"),
        ("data.to(device).chunk", "data.flip(0).to(device).chunk"),
        ("torch.empty(micro_batch_size, num_dim", "torch.empty(num_dim, micro_batch_size"),
        ("for _ in range(num_micro_batches)]", "for _ in range(num_micro_batches - 1)]"),
        ("for x in micro_batches", "for x in micro_batches[::-1]"),
        ("if rank > 0:", "if rank > 1:"),
        ("src=rank - 1", "src=rank + 1"),
        ("in local_params:", "in local_params[::-1]:"),
        ("x @ param)", "x @ param.T)"),
        ("F.gelu(", "F.relu("),
        ("if rank < world_size - 1", "if rank < world_size"),
        ("to rank {rank + 1}", "to rank {rank}"),
        ("dist.send(x, dst=rank + 1)", "dist.send(x, dst=rank - 1)"),
        ("dist.send(x, dst=rank + 1)", "dist.send(x + 1, dst=rank + 1)"),
        ("cleanup()", "pass"),
    ),
]

ON_ITS_DEVICE = "test_same_program::test_what_a_rank_computes_with_and_communicates_lies_on_its_own_device"
DEVICES = [
    *mutants_of(
        "collective_operations_main",
        ON_ITS_DEVICE,
        ("[0., 1., 2., 3.], device=device", "[0., 1., 2., 3.]"),
        ("torch.zeros(1, device=device)", "torch.zeros(1)"),
    ),
    *mutants_of("data_parallelism_main", ON_ITS_DEVICE, (".to(cuda_if_available(rank))", "")),
    *mutants_of("tensor_parallelism_main", ON_ITS_DEVICE, (".to(cuda_if_available(rank))", "")),
    *mutants_of("pipeline_parallelism_main", ON_ITS_DEVICE, (".to(device)", ""), (", device=device)", ")")),
]

HELPERS = [
    *mutants_of(
        "setup",
        "test_helpers::test_setup_joins_with_nccl_where_the_rank_has_a_gpu_and_else_with_gloo",
        ("join_store(rank, world_size)", "join_store(world_size, rank)"),
        ("cuda_if_available(rank)", "cuda_if_available(0)"),
        ('device if device.type == "cuda" else None', "device"),
        ('"nccl" if gpu else "gloo"', '"gloo"'),
        ('"nccl" if gpu else "gloo"', '"nccl"'),
        ("store=store, ", ""),
        ("rank=rank", "rank=0"),
        ("timeout=RANK_TIMEOUT, ", ""),
        ("device_id=gpu", "device_id=device"),
    ),
    *mutants_of(
        "cleanup",
        "test_helpers::test_cleanup_leaves_with_the_last_rank",
        ("dist.barrier()", "pass"),
        ("dist.destroy_process_group()", "pass"),
        ("report_rank_done()", "pass"),
        (
            "dist.destroy_process_group()\n    report_rank_done()",
            "report_rank_done()\n    dist.destroy_process_group()",
        ),
    ),
    *mutants_of(
        "generate_sample_data",
        "test_helpers::test_sample_data_is_normal_and_the_same_on_every_call",
        (", generator=generator", ""),
        ("torch.Generator().manual_seed(2)", "torch.Generator().manual_seed(torch.seed() % 2**32)"),
        ("torch.randn(", "torch.rand("),
        ("128, 1024, g", "1024, 128, g"),
    ),
    *mutants_of(
        "get_init_params",
        "test_helpers",
        ("torch.manual_seed(0)", "torch.manual_seed(rank)"),
        ("torch.manual_seed(0)", "pass"),
        ("sqrt(num_outputs)", "sqrt(num_inputs)"),
        ("torch.randn(num_inputs, num_outputs)", "torch.rand(num_inputs, num_outputs)"),
        ("cuda_if_available(rank)", "cuda_if_available(0)"),
        ("nn.Parameter(weight.to(cuda_if_available(rank)))", "weight.to(cuda_if_available(rank))"),
    ),
    *mutants_of(
        "int_divide",
        "test_helpers",
        ("if a % b != 0", "if False"),
        ("{a} is not divisible by {b}", "{a} cannot be divided"),
        ("return a // b", "return a / b"),
    ),
    *mutants_of(
        "summarize_tensor",
        "test_helpers",
        ("map(str, tensor.shape)", "map(str, tensor.shape[::-1])"),
        ("tensor.flatten()[0]", "tensor.flatten()[-1]"),
        ("round(tensor.flatten()[0].item(), 4)", "round(tensor.flatten()[0].item(), 3)"),
        (", 4)}...]", ", 4)}]"),
    ),
    *mutants_of(
        "render_duration",
        "test_helpers",
        ("if seconds < 1e-3", "if seconds <= 1e-3"),
        ("seconds * 1e6", "seconds * 1e5"),
        ("if seconds < 1:", "if seconds <= 1:"),
        ("seconds * 1e3", "seconds * 1024"),
        ('return f"{seconds:.2f}s"', 'return f"{seconds:.1f}s"'),
    ),
    *mutants_of(
        "plan_run",
        "test_devices",
        ("world_size < 1", "world_size < 0"),
        ("num_gpus < 0", "num_gpus < -1"),
        ("if num_gpus >= world_size:", "if num_gpus > world_size:"),
        ("if num_gpus >= 2:", "if num_gpus >= 1:"),
        ("fewer = max(", "fewer = min("),
        ("range(1, num_gpus + 1)", "range(1, num_gpus)"),
        ('return RunPlan("nccl", fewer, notice)', 'return RunPlan("nccl", fewer, None)'),
        ('RunPlan("gloo", world_size, notice)', 'RunPlan("nccl", world_size, notice)'),
        file="gpu_util.py",
    ),
    *mutants_of(
        "DisableDistributed",
        "test_spawn test_same_program",
        ("self.originals: list[dict[str, Any]] = []", "pass"),
        ('import_untraced("torch._dynamo")', "pass"),
        ("(FunctionType, BuiltinFunctionType)", "(BuiltinFunctionType,)"),
        ("(FunctionType, BuiltinFunctionType)", "(FunctionType,)"),
        ("if type(value) in (FunctionType, BuiltinFunctionType)", "if callable(value)"),
        ("type(value) in (FunctionType, BuiltinFunctionType)", "isinstance(value, FunctionType | BuiltinFunctionType)"),
        ("self.originals.append(functions)", "self.originals = [functions]"),
        ("vars(dist).update(dict", "dict(vars(dist)).update(dict"),
        ("**kwargs: None", "**kwargs: 0"),
        ("        vars(dist).update(self.originals.pop())", "        pass"),
        ("vars(dist).update(self.originals.pop())", "exception[0] or vars(dist).update(self.originals.pop())"),
    ),
    *mutants_of(
        "spawn",
        "test_spawn test_same_program test_launch",
        ("(*args, *kwargs.values())", "args"),
        ("is not None", "is None"),
        ("say_that_only_rank_0_runs()", "pass"),
        ("with DisableDistributed():", "if True:"),
        ("func(0, world_size,", "func(0, 1,"),
        ("run_launched_rank(func, world_size, args)", "run_launched_rank(func, 1, args)"),
        (" as world_size:  #", ":  #"),
        ("args=(world_size, *args)", "args=(world_size,)"),
        ("nprocs=world_size", "nprocs=1"),
        ("join=True", "join=False"),
    ),
]  # fmt: skip

MUTANTS = TELLING + COLLECTIVES + BENCHMARKS + STRATEGIES + DEVICES + HELPERS


def copy_repository(folder: Path) -> Path:
    """A copy of what the tests need."""
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


def run_tests(repository: Path, node_ids: list[str]) -> tuple[int, str]:
    """pytest's exit code (0 passed, 1 failed), and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *node_ids]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=repository, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT
    )
    return done.returncode, done.stdout.decode(errors="replace")


def is_caught(mutant: Mutant, repository: Path) -> bool:
    """Whether the mutant's tests fail on it. Raises RuntimeError if they could not run."""
    file = repository / mutant.file
    source = file.read_text(encoding="utf-8")
    file.write_text(mutant.apply(source), encoding="utf-8")
    try:
        code, output = run_tests(repository, mutant.node_ids)
    finally:
        file.write_text(source, encoding="utf-8")
    if code not in (0, 1):
        raise RuntimeError(f"{mutant}: pytest ended with code {code}\n{output}")
    return code == 1


def main(words: list[str]) -> int:
    """Try the mutants and return the number that survive."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in str(mutant) for word in words)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(NUM_WORKERS) as workers:
        copies: Queue[Path] = Queue()
        for number in range(NUM_WORKERS):
            copies.put(copy_repository(Path(folder, str(number))))
        original = copies.get()
        code, output = run_tests(original, sorted({node for mutant in chosen for node in mutant.node_ids}))
        copies.put(original)
        if code:
            sys.exit(f"The tests fail without any mutant:\n{output}")

        def attempt(mutant: Mutant) -> bool:
            repository = copies.get()
            try:
                caught = is_caught(mutant, repository)
            finally:
                copies.put(repository)
            print(f"{'caught  ' if caught else 'SURVIVED'} {mutant}", flush=True)
            return caught

        survivors = list(workers.map(attempt, chosen)).count(False)
    print(f"{len(chosen)} mutants, {survivors} survived")
    return survivors


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
