"""Calls of every kind: what the order of execution has to be right for."""

from edtrace import text


def last() -> None:
    text("The last one.")


# Of a tree
def depth(tree: list) -> int:
    if not tree:
        return 0
    return 1 + depth(tree[0])


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1


def never_called() -> None:
    pass


def main() -> None:
    text("# Calls")
    first()
    text("## Again")
    helper()
    counter = Counter()
    for _ in range(2):
        counter.add()
    depth([[[]]])
    last()


def first() -> None:
    text("## First")
    helper()
    print("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain")
    print("10 %\r100 %")


def helper() -> None:
    text("Helping with H<sub>2</sub>O.")


if __name__ == "__main__":
    main()
