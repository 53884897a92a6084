"""What happens in a rank's process during a recorded run: its per-rank program is traced line by line."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType

import torch
import torch.distributed as dist

from trace_page.record.rank_values import ValueReader
from trace_page.record.recording import Communication, Print, Rank, Step, TensorArgument, Value

ROLES = {
    "broadcast": {"tensor": "both"},
    "reduce": {"tensor": "both"},
    "all_reduce": {"tensor": "both"},
    "scatter": {"scatter_list": "input", "tensor": "output"},
    "gather": {"tensor": "input", "gather_list": "output"},
    "all_gather": {"tensor": "input", "tensor_list": "output"},
    "all_gather_single": {"input_tensor": "input", "output_tensor": "output"},
    "all_gather_into_tensor": {"input_tensor": "input", "output_tensor": "output"},
    "reduce_scatter": {"input_list": "input", "output": "output"},
    "reduce_scatter_single": {"input": "input", "output": "output"},
    "reduce_scatter_tensor": {"input": "input", "output": "output"},
    "all_to_all": {"input_tensor_list": "input", "output_tensor_list": "output"},
    "all_to_all_single": {"input": "input", "output": "output"},
    "send": {"tensor": "input"},
    "isend": {"tensor": "input"},
    "recv": {"tensor": "output"},
    "irecv": {"tensor": "output"},
    "barrier": {},
}
"""The communicating functions of torch.distributed, by old and new names: which parameters they read and fill."""

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ROOTED = ("broadcast", "reduce", "scatter", "gather")


def device_name() -> str:
    """What this rank computes on."""
    return torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu"


def _code_of(function: Callable) -> CodeType | None:
    """The code that the innermost of the functions that a decorated function wraps runs."""
    return getattr(inspect.unwrap(function), "__code__", None)


def _operations() -> dict[int, str]:
    """The names of the communicating functions that this torch has, by the id of their code."""
    functions = {name: getattr(dist, name, None) for name in ROLES}
    return {id(_code_of(function)): name for name, function in functions.items() if inspect.isfunction(function)}


OPERATIONS = _operations()


@dataclass(frozen=True)
class Statement:
    """The lines of a statement (of a compound statement: of its header), the names it assigns to, and how it writes the
    arguments of each operation that it calls: operation → parameter → source."""

    first_line: int
    last_line: int
    assigned: frozenset[str] = frozenset()
    arguments: dict[str, dict[str, str]] = field(default_factory=dict)


def statements_by_line(function: Callable) -> dict[int, Statement]:
    """The statements of `function`, by each of their lines. Raises OSError when its source cannot be read."""
    lines, first_line = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first_line - 1)
    by_line: dict[int, Statement] = {}
    for node in _statements(tree.body[0].body):
        body = getattr(node, "body", None)
        simple = body is None or isinstance(node, DEFINITIONS)
        start = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
        end = node.end_lineno if simple else max(start, body[0].lineno - 1)
        assigns = isinstance(node, (ast.Assign, ast.AugAssign)) or (isinstance(node, ast.AnnAssign) and node.value)
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        names = [name for target in targets if assigns for name in ast.walk(target) if isinstance(name, ast.Name)]
        assigned = frozenset(name.id for name in names if isinstance(name.ctx, ast.Store))
        statement = Statement(start, end, assigned, _arguments(node, function.__globals__) if simple else {})
        for line in range(start, end + 1):
            by_line.setdefault(line, statement)
    return by_line


def _statements(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """All statements under `nodes` that run in the same frame, the headers of handlers and cases with them."""
    for node in nodes:
        yield node
        if not isinstance(node, DEFINITIONS):
            for block in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _statements(getattr(node, block, []))


def _arguments(node: ast.AST, names: dict[str, object]) -> dict[str, dict[str, str]]:
    """See `Statement.arguments`; an operation that is called twice in a statement is left out."""
    calls: dict[str, list[dict[str, str]]] = {}
    for call in ast.walk(node):
        function = _named(call.func, names) if isinstance(call, ast.Call) else None
        operation = OPERATIONS.get(id(_code_of(function))) if inspect.isfunction(function) else None
        if operation is not None and not any(isinstance(argument, ast.Starred) for argument in call.args):
            written = dict(zip(inspect.signature(function).parameters, call.args, strict=False))
            written.update((keyword.arg, keyword.value) for keyword in call.keywords)
            calls.setdefault(operation, []).append({name: ast.unparse(value) for name, value in written.items()})
    return {operation: found[0] for operation, found in calls.items() if len(found) == 1}


def _named(node: ast.AST, names: dict[str, object]) -> object:
    """What `name` or `name.attribute` stands for; None for any other expression and unknown names."""
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, names), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None


class RankTracer:
    """Runs a per-rank program and notes its steps, communications and printed lines.

    Only lines of the program itself are traced; of the functions it calls, only that they were called is seen. Between
    two of its lines the work is microseconds plus reading those tensors that are small enough to be read.
    """

    def __init__(self, function: Callable) -> None:
        self._function = function
        self._code = _code_of(function)
        if self._code is None:
            raise TypeError(f"cannot record {function!r}: torch.multiprocessing.spawn was given no Python function")
        self._statements = statements_by_line(inspect.unwrap(function))
        self._reader = ValueReader()
        self.steps: list[Step] = []
        self.prints: list[Print] = []
        self._known: dict[str, tuple[tuple, Value]] = {}
        self._frame: FrameType | None = None
        self._statement = Statement(self._code.co_firstlineno, self._code.co_firstlineno)
        self._raised = False
        self._communications: list[tuple[Communication, list[object]]] = []
        self._unfinished_line = ""
        self.backend: str | None = None

    def run(self, *args: object) -> Rank:
        """Call the function with `args`; what it raises is raised."""
        stdout, write, former = sys.stdout, sys.stdout.write, sys.gettrace()

        def write_and_note(text: str) -> int:
            self._note_printed(text)
            return write(text)

        # An attribute of the stream rather than another stream: it stays all that the program expects of sys.stdout.
        stdout.write = write_and_note
        sys.settrace(self._trace_calls)
        try:
            self._function(*args)
        finally:
            sys.settrace(former)
            del stdout.write
        return Rank(self.steps, self.prints)

    def _trace_calls(self, frame: FrameType, event: str, arg: object) -> Callable | None:
        """Called when a function is entered; returns what is to be called for its lines."""
        code = frame.f_code
        if code is self._code and self._frame is None:
            self._frame = frame
            return self._trace_lines
        if id(code) in OPERATIONS and self._is_outermost_operation(frame):
            self._begin_communication(OPERATIONS[id(code)], frame)
        return None

    def _trace_lines(self, frame: FrameType, event: str, arg: object) -> Callable:
        """Called before each line of the per-rank program: the line before is over then."""
        if event == "exception":
            self._raised = True
        elif event == "return":
            self._end_statement()
            if self._unfinished_line:
                self._note_printed("\n", len(self.steps) - 1)
            self._frame = self._code = None  # a decorator may go on, or even call the function again
        elif event == "line":
            line = frame.f_lineno
            statement = self._statements.get(line) or Statement(line, line)
            if statement is not self._statement:  # else execution has come to another of its lines
                self._end_statement()
                self._statement = statement
        return self._trace_lines

    def _end_statement(self) -> None:
        """Note what the statement that has just been executed did."""
        self._reader.start_over()
        variables = self._frame.f_locals
        statement, known, read = self._statement, self._known, self._reader.read
        step = Step(statement.first_line, statement.last_line)
        filled = {  # also where a tensor is too large for its content to be read
            id(item)
            for communication, objects in self._communications
            for tensor, item in zip(communication.tensors, objects, strict=True)
            if tensor.role != "input"
        }
        for name, variable in variables.items():
            value = read(variable)
            counts = type(variable) is torch.Tensor and not variable.is_inference()
            state = (id(variable), variable._version if counts else None)
            former = known.get(name)
            if (
                former is None
                or former[0] != state
                or former[1] != value
                or (name in statement.assigned and not self._raised)
                or id(variable) in filled
            ):
                step.changed[name] = value
                known[name] = (state, value)
        step.deleted = [name for name in known if name not in variables]
        for name in step.deleted:
            del known[name]
        for communication, objects in self._communications:
            if not communication.asynchronous:
                for tensor, item in zip(communication.tensors, objects, strict=True):
                    tensor.after = read(item)
            step.communications.append(communication)
        self._communications = []
        self._raised = False
        self.steps.append(step)

    def _is_outermost_operation(self, frame: FrameType) -> bool:
        """Whether the per-rank program called this operation, not another operation that is made of it."""
        caller = frame.f_back
        while caller is not None and caller is not self._frame:
            if id(caller.f_code) in OPERATIONS:
                return False
            caller = caller.f_back
        return caller is not None

    def _begin_communication(self, operation: str, frame: FrameType) -> None:
        """Note what goes into a communicating function, `frame` of which has just been entered."""
        arguments = frame.f_locals
        written = self._statement.arguments.get(operation, {})
        communication = Communication(operation, [])
        objects = []
        for parameter, role in ROLES[operation].items():
            argument = arguments[parameter]
            if argument is not None:  # as is the list of a scatter or gather on a rank that is not the root
                expression = written.get(parameter) or self._variable_holding(argument) or parameter
                communication.tensors.append(TensorArgument(expression, role, self._reader.read_now(argument)))
                objects.append(argument)
        if "op" in arguments:
            communication.reduce_op = str(arguments["op"]).rpartition(".")[2]
        named = [arguments.get(key) for key in ("dst", "src", "group_dst", "group_src")]
        other = next((rank for rank in named if rank is not None), None)
        if operation in ROOTED:
            communication.root = 0 if other is None else other
        else:
            communication.peer = other
        communication.asynchronous = operation in ("isend", "irecv") or bool(arguments.get("async_op"))
        self._communications.append((communication, objects))
        if self.backend is None:
            self.backend = dist.get_backend()

    def _variable_holding(self, value: object) -> str | None:
        return next((name for name, variable in self._frame.f_locals.items() if variable is value), None)

    def _note_printed(self, text: str, step: int | None = None) -> None:
        """Note the lines that `text` completes as printed by step `step`: if None, by the one that is under way."""
        if self._frame is None:
            return
        *lines, self._unfinished_line = (self._unfinished_line + text).split("\n")
        for line in lines:
            self.prints.append(Print(len(self.steps) if step is None else step, self._statement.first_line, line))
