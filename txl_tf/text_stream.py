"""Incremental decoding of ids to text, by a tokenizer or a server."""

from collections.abc import Callable, Iterable

_REPLACEMENT = "\ufffd"  # decoding of an incomplete character
_CONTEXT = 64  # maximum number of ids kept as context, and half of it the minimum


class TextStream:
    """Decodes ids incrementally; holds back a character until all of its bytes are there.

        stream = TextStream(tokenizer.decode)
        for ids in chunks:
            print(stream.add(ids), end="")
        print(stream.finish())

    Args:
      decode: returns the text of ids. It gets the newest ids only, so that long texts stay cheap.
      context: preceding ids. Their text is not returned, but may affect that of the next ids, for
        example a leading space.
    """

    def __init__(self, decode: Callable[[list[int]], str], context: Iterable[int] = ()):
        self._decode = decode
        self._ids = [int(i) for i in context]
        self._shown = len(decode(self._ids))
        self._limit = 2 * _CONTEXT  # number of ids at which old ones are dropped

    def add(self, ids: Iterable[int]) -> str:
        """Appends ids, ignoring -1, and returns the text that is complete now."""
        self._ids += [int(i) for i in ids if i >= 0]
        content = self._decode(self._ids)
        new = self._show(content.rstrip(_REPLACEMENT))
        self._drop_old_ids(content)
        return new

    def finish(self) -> str:
        """Returns the rest at the end: incomplete characters, each as U+FFFD."""
        return self._show(self._decode(self._ids))

    def _drop_old_ids(self, content: str) -> None:
        """Keeps only the newest ids, so that the cost of `add` does not grow with the text.

        The kept ids begin with a visible character, whose decoding does not depend on earlier ids.
        That of a partial character, a space or a line end may.
        """
        if len(self._ids) < self._limit:
            return
        for start in range(len(self._ids) - _CONTEXT, len(self._ids) - _CONTEXT // 2):
            kept = self._decode(self._ids[start:])
            if kept[:1].strip(f"{_REPLACEMENT} \t\n"):
                self._ids = self._ids[start:]
                self._shown -= len(content) - len(kept)
                self._limit = 2 * _CONTEXT
                return
        self._limit = len(self._ids) + _CONTEXT  # no such character: try again later

    def _show(self, content: str) -> str:
        new = content[self._shown :]
        self._shown = max(self._shown, len(content))
        return new
