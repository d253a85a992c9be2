"""Text that comes id by id, from a tokenizer or from a server that decodes."""

from collections.abc import Callable, Iterable

_REPLACEMENT = "\ufffd"  # what an incomplete character is shown as
_KEPT = 64  # ids, at least, that the text of the next ones follows from


class TextStream:
    """Turns ids into text as they come. A character whose bytes are not all there waits for them.

    Args:
      decode: the text of ids. It is given the newest ones, each in a bounded number of calls.
      context: the ids before, whose text is not shown; it decides, say, whether a space follows.
    """

    def __init__(self, decode: Callable[[list[int]], str], context: Iterable[int] = ()):
        self._decode = decode
        self._ids = [int(i) for i in context]
        self._shown = len(decode(self._ids))
        self._enough = 2 * _KEPT  # ids, with which a place to begin is looked for

    def add(self, ids: Iterable[int]) -> str:
        """Returns the new text after `ids`, ignoring those of -1."""
        self._ids += [int(i) for i in ids if i >= 0]
        content = self._decode(self._ids)
        new = self._show(content.rstrip(_REPLACEMENT))
        self._forget(content)
        return new

    def finish(self) -> str:
        """Returns the rest at the end: incomplete characters, each as U+FFFD."""
        return self._show(self._decode(self._ids))

    def _forget(self, content: str) -> None:
        """Keeps the newest ids alone, so that a long text costs no more to go on with than a short.

        They begin with a letter that can be seen: its text, and what follows from it, are what they
        are after all the ids before it. Half a character or a line end need not be.
        """
        if len(self._ids) < self._enough:
            return
        for start in range(len(self._ids) - _KEPT, len(self._ids) - _KEPT // 2):
            kept = self._decode(self._ids[start:])
            if kept[:1].strip(f"{_REPLACEMENT} \t\n"):
                self._ids = self._ids[start:]
                self._shown -= len(content) - len(kept)
                self._enough = 2 * _KEPT
                return
        self._enough = len(self._ids) + _KEPT  # none: not looked for again at each id

    def _show(self, content: str) -> str:
        new = content[self._shown :]
        self._shown = max(self._shown, len(content))
        return new
