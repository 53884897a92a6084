# ruff: noqa: F841  A lesson's variables are there to be looked at.
import sys

import torch
from edtrace import Reference, graph, image, link, make_graph, note, plot, text, video
from lesson_util import article_link, spawn


def main() -> None:
    text("# A small lesson")
    text("Everything that a trace can show, with $x^2$ and **bold** text.")
    note("Say hello to the *audience*.")
    first_section()
    second_section()
    text("## Summary")
    text("That was all.")


def first_section() -> None:
    text("## Narration")
    image("picture.png", width=200)
    text("| rank | sum |\n|---|---:|\n| 0 | 6 |\n| 1 | 10 |")
    text("$$\\sum_{r=0}^{n-1} x_r$$")
    text("```python\nfor rank in range(4):\n    pass\n```")
    text("Never markup: <script>alert('narration')</script>")
    text("Read "), link(title="the log", url="var/traces/lesson_stdout.txt"), text(", then go on.")
    link(Reference(title="A paper", authors=["Ada Lovelace", "Alan Turing"], date="1950-10-01", url="https://example.org/p"))
    link(title="not a link", url="javascript:alert(1)")
    article_link("https://example.org/article")
    link(shard_sum)
    link(spawn)
    text("rank 0\n  rank <1>", verbatim=True)
    video("clip.mp4")
    plot({"mark": "bar", "data": {"values": [{"size": 1, "time": 2.5}]}})
    graph(make_graph([{"id": "a"}, {"id": "b", "label": "Bee"}], [{"source": "a", "target": "b", "label": "sends"}]))
    text("One"), text("Two"), text("Three")  # @animate
    secret = 1  # @hide
    text(
        "Spread over "
        "lines"
    )


def second_section() -> None:
    text("## Ranks")
    text("Each rank sums its shard.")
    spawn(shard_sum, world_size=4, num_elements=8)
    spawn(shapes, world_size=2)


def shard_sum(rank: int, world_size: int, num_elements: int) -> None:
    text("Now inside a rank.")  # @inspect rank world_size
    data = torch.arange(num_elements) + rank  # @inspect data data.shape
    total = 0  # a running sum @inspect total
    for index in range(3):  # @inspect index
        total = total + int(data[index])  # @inspect total
    print(f"Rank {rank} [before]: {data}")
    print(f"[shard_sum] Rank {rank}: shard_sum(world_size={world_size}, num_elements={num_elements}) = {total}")
    names = ["a", "<b>"]  # @inspect names
    text("Cleared.")  # @clear data total
    if rank == 3:
        print(f"Rank {rank} says <script>document.title = 'owned'</script>")


def shapes(rank: int, world_size: int) -> None:
    matrix = torch.ones(40, 50) * float("nan")  # @inspect matrix
    cube = torch.zeros(2, 2, 3)  # @inspect cube @stepover
    table = {"weights": torch.tensor(1.5), "none": None, "list": [1, [2.5, "three"]]}  # @inspect table
    print(f"Rank {rank} matrix: {cube[0]}")
    print("done")


if __name__ == "__main__":
    main()
    print("a line of no", end=" ")
    sys.stdout.write("print\n")
