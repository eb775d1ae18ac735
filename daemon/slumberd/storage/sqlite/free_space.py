"""Find the free bytes of a SQLite file: bytes that neither a row nor the structure uses.

SQLite does not read free bytes. They may contain deleted rows, old versions of rows, and copies of
rows that SQLite has moved to another page. ``PRAGMA secure_delete`` does not clear such copies.
The terms are those of https://sqlite.org/fileformat2.html. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from struct import Struct

Interval = tuple[int, int]
"""The first byte of a range in a page, and the byte after its last."""

_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
_INTERIOR = frozenset((_INTERIOR_INDEX, _INTERIOR_TABLE))
_KINDS = frozenset((_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE))

_FILE_HEADER = 100
"""Bytes of the header of the file, at the start of page 1."""

_TREE_HEADER = Struct(">BHHHB")
"""Kind, first free block, number of cells, start of the cells, bytes in fragments."""

_FREE_BLOCK = Struct(">HH")
_TRUNK = Struct(">II")
_NUMBER = Struct(">I")

_LOCKED_BYTE = 2**30
"""The byte that SQLite locks. The page that contains it is never used."""

_MORE = 0x80
"""The bit of a byte of an integer that says that another byte follows."""

_UNKNOWN, _TREE, _TRUNK_PAGE, _FREE = range(4)


class UnexpectedPageError(ValueError):
    """A page is not as the format says, or not of a kind that this module knows."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"page {number} {problem}")


class FreeSpace:
    """The free bytes of each page, in one state of a file.

    Args:
        read: Returns a page, by its number from 1 on. The file must not change meanwhile.
        size: Bytes in a page.
        count: The number of pages.
        roots: The first page of each table and index; page 1 need not be among them.
        overflows: What an earlier state knew of overflow pages: the content bytes of each. Pages
            that changed since must be looked at again.

    Raises:
        UnexpectedPageError: The tables, the indexes and the free list do not fit together.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        size: int,
        count: int,
        roots: Iterable[int],
        overflows: dict[int, int],
    ) -> None:
        self._read = read
        self._size = size
        self._zeros = bytes(size)
        self._count = count
        self._overflows = overflows
        self._complete = False
        self._roles = bytearray(count + 1)
        self._least_local = (size - 12) * 32 // 255 - 23
        for root in sorted({1, *roots}):
            self._find_tree(root)
        self._find_free_list()

    def of_all(self) -> Iterator[tuple[int, bytes, list[Interval]]]:
        """Yield each page that has free bytes: its number, its bytes and the free ones.

        Raises:
            UnexpectedPageError: A page is damaged, or nothing refers to it.
        """
        self._overflows.clear()
        self._complete = True
        yield from self.of(range(1, self._count + 1))

    def of(self, numbers: Iterable[int]) -> Iterator[tuple[int, bytes, list[Interval]]]:
        """Yield those of some pages that have free bytes.

        Args:
            numbers: All pages that changed since the state that `overflows` knows.

        Raises:
            UnexpectedPageError: A page is damaged, or nothing refers to it.
        """
        others = []
        for number in numbers:
            if not 1 <= number <= self._count:  # the file was longer then
                continue
            if self._roles[number] != _TREE:
                others.append(number)
                continue
            page = self._read(number)
            yield number, page, self._of_tree_page(number, page)
        # The cells of all tree pages are known to use none of these.
        for number in others:
            page = self._read(number)
            yield number, page, [(self._used_of(number, page), self._size)]

    def _used_of(self, number: int, page: bytes) -> int:
        """Return how many bytes of a page outside of all trees are in use."""
        if self._roles[number] == _FREE:
            return 0
        if self._roles[number] == _TRUNK_PAGE:
            return _TRUNK.size + 4 * self._leaves_of(number, page)
        if number == _LOCKED_BYTE // self._size + 1:
            return self._size
        if number not in self._overflows:
            raise UnexpectedPageError(number, "belongs to no table")
        return 4 + self._overflows[number]

    # Trees.

    def _find_tree(self, root: int) -> None:
        """Find the pages of one table or index; all its leaves have the same depth."""
        waiting = [root]
        self._claim(root, _TREE)
        while waiting:
            number = waiting.pop()
            page = self._read(number)
            if _kind_of(number, page) not in _INTERIOR:
                continue
            children = self._children(number, page)
            for child in children:
                self._claim(child, _TREE)
            if _kind_of(children[0], self._read(children[0])) in _INTERIOR:
                waiting += children

    def _claim(self, number: int, role: int) -> None:
        if not 1 <= number <= self._count:
            raise UnexpectedPageError(number, "lies outside of the file")
        if self._roles[number] != _UNKNOWN:
            raise UnexpectedPageError(number, "is used twice")
        self._roles[number] = role

    def _children(self, number: int, page: bytes) -> list[int]:
        start = _start_of(number)
        _, pointers = self._pointers(number, page)
        cells = [_NUMBER.unpack_from(page, pointer)[0] for pointer in pointers]
        return [*cells, _NUMBER.unpack_from(page, start + _TREE_HEADER.size)[0]]

    def _pointers(self, number: int, page: bytes) -> tuple[int, tuple[int, ...]]:
        """Return where the list of cells ends, and where each cell begins."""
        start = _start_of(number)
        kind, _, cells, _, _ = _TREE_HEADER.unpack_from(page, start)
        first = start + _TREE_HEADER.size + (4 if kind in _INTERIOR else 0)
        end = first + 2 * cells
        if end > self._size:
            raise UnexpectedPageError(number, "has too many cells")
        pointers: tuple[int, ...] = Struct(f">{cells}H").unpack_from(page, first)
        if pointers and not end <= min(pointers) <= max(pointers) <= self._size - 4:
            raise UnexpectedPageError(number, "has a cell outside of it")
        return end, pointers

    def _of_tree_page(self, number: int, page: bytes) -> list[Interval]:
        kind = _kind_of(number, page)
        _, block, _, content, fragments = _TREE_HEADER.unpack_from(page, _start_of(number))
        end, pointers = self._pointers(number, page)
        content = content or 65_536
        if not end <= content <= min(pointers, default=self._size):
            raise UnexpectedPageError(number, "has cells that overlap its list of cells")
        blocks = list(self._blocks(number, page, block, content))
        intervals = [(end, content), *((first + 4, last) for first, last in blocks)]
        self._follow_overflows(number, page, kind, pointers)
        if fragments or any(map(partial(self._is_dirty, page), intervals)):
            found = list(self._fragments(number, page, kind, [(0, content), *blocks], pointers))
            if sum(last - first for first, last in found) != fragments:
                raise UnexpectedPageError(number, "counts other fragments than it has")
            intervals += found
        return intervals

    def _is_dirty(self, page: bytes, interval: Interval) -> bool:
        start, end = interval
        return page[start:end] != self._zeros[: end - start]

    def _blocks(self, number: int, page: bytes, block: int, content: int) -> Iterator[Interval]:
        """Yield the free blocks between the cells of a page."""
        least = content
        while block:
            following, length = _FREE_BLOCK.unpack_from(page, block)
            end = block + length
            if block < least or length < _FREE_BLOCK.size or end > self._size:
                raise UnexpectedPageError(number, "has a damaged list of free blocks")
            yield block, end
            block, least = following, end

    def _fragments(
        self, number: int, page: bytes, kind: int, known: list[Interval], cells: tuple[int, ...]
    ) -> Iterator[Interval]:
        """Yield what lies between the cells and the `known` ranges: too few bytes for a block."""
        ranges = sorted([*known, *((at, self._cell(page, at, kind)[0]) for at in cells)])
        for (_, end), (start, _) in pairwise([*ranges, (self._size, 0)]):
            if start < end:
                raise UnexpectedPageError(number, "has cells that overlap")
            if start > end:
                yield end, start

    def _cell(self, page: bytes, at: int, kind: int) -> tuple[int, int]:
        """Return where a cell ends, and how many bytes of its content lie on overflow pages."""
        position = at + 4 if kind in _INTERIOR else at
        length, position = _varint(page, position)
        if kind == _INTERIOR_TABLE:
            return position, 0
        if kind == _LEAF_TABLE:
            _, position = _varint(page, position)
        if length <= self._most_local(kind):
            return max(position + length, at + 4), 0
        local = self._least_local + (length - self._least_local) % (self._size - 4)
        if local > self._most_local(kind):
            local = self._least_local
        return position + local + 4, length - local

    def _most_local(self, kind: int) -> int:
        """Return how many bytes of a content lie on the page of its cell at most."""
        return self._size - 35 if kind == _LEAF_TABLE else (self._size - 12) * 64 // 255 - 23

    # Overflow pages, and the free list.

    def _follow_overflows(
        self, number: int, page: bytes, kind: int, pointers: tuple[int, ...]
    ) -> None:
        """Learn the overflow pages of a page's cells."""
        if kind == _INTERIOR_TABLE or not pointers:
            return
        begins = sorted(pointers)
        begins.append(self._size)
        skipped, most = 4 if kind in _INTERIOR else 0, self._most_local(kind)
        for at, following in pairwise(begins):
            if following - at < self._least_local:  # a shorter cell has no overflow page
                continue
            if _varint(page, at + skipped)[0] > most:
                end, beyond = self._cell(page, at, kind)
                if end > self._size:
                    raise UnexpectedPageError(number, "has a cell outside of it")
                self._follow(_NUMBER.unpack_from(page, end - 4)[0], beyond)

    def _follow(self, number: int, length: int) -> None:
        most = self._size - 4
        while length > 0:
            if not 1 <= number <= self._count or self._roles[number] != _UNKNOWN:
                raise UnexpectedPageError(number, "is no overflow page")
            if self._complete and number in self._overflows:
                raise UnexpectedPageError(number, "is used twice")
            here = min(length, most)
            self._overflows[number] = here
            length -= here
            number = _NUMBER.unpack_from(self._read(number))[0]
        if number:
            raise UnexpectedPageError(number, "follows the end of a content")

    def _find_free_list(self) -> None:
        trunk, count = _TRUNK.unpack_from(self._read(1), 32)
        while trunk:
            self._claim(trunk, _TRUNK_PAGE)
            page = self._read(trunk)
            leaves = self._leaves_of(trunk, page)
            for (leaf,) in _NUMBER.iter_unpack(page[_TRUNK.size : _TRUNK.size + 4 * leaves]):
                self._claim(leaf, _FREE)
            count -= 1 + leaves
            trunk = _NUMBER.unpack_from(page)[0]
        if count:
            raise UnexpectedPageError(1, "counts other free pages than there are")

    def _leaves_of(self, number: int, page: bytes) -> int:
        leaves: int = _TRUNK.unpack_from(page)[1]
        if _TRUNK.size + 4 * leaves > self._size:
            raise UnexpectedPageError(number, "has a damaged list of free pages")
        return leaves


def _start_of(number: int) -> int:
    return _FILE_HEADER if number == 1 else 0


def _kind_of(number: int, page: bytes) -> int:
    kind = page[_start_of(number)]
    if kind not in _KINDS:
        raise UnexpectedPageError(number, f"has the unknown kind {kind}")
    return kind


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return an integer of variable length, and the position after it."""
    value = page[at]
    if value < _MORE:
        return value, at + 1
    value &= _MORE - 1
    for position in range(at + 1, at + 8):
        byte = page[position]
        value = value << 7 | byte & (_MORE - 1)
        if byte < _MORE:
            return value, position + 1
    return value << 8 | page[at + 8], at + 9
