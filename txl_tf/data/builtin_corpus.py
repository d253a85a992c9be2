"""Built-in corpus: CPython's own documentation, as shown by `help()`.

`pydoc_data.topics` holds 79 topics, half a megabyte, many of which repeat parts of bigger ones. To
keep held-out text out of training, each paragraph is used once, biggest topics first, and a topic
of which less than half is left is skipped. The rest is cut, topic by topic, into blocks of whole
paragraphs of at least 2,000 characters; of every ten blocks the ninth is for validation and the
tenth for testing. Held-out text is thus similar to, but not part of, the training text.
"""

from collections.abc import Iterator

from txl_tf.data.text import Source

_BLOCK_CHARACTERS = 2000
_PERIOD = 10
_HELD_OUT = {8: "valid", 9: "test"}  # index in a period -> split; others are for training


def sources() -> dict[str, list[Source]]:
    """Returns the texts of each split, one source (and document) per topic."""
    splits: dict[str, list[Source]] = {"train": [], "valid": [], "test": []}
    number = 0
    for name, paragraphs in _topics():
        parts: dict[str, list[str]] = {}
        for block in _blocks(paragraphs):
            split = _HELD_OUT.get(number % _PERIOD, "train")
            parts.setdefault(split, []).append(block)
            number += 1
        for split, blocks in parts.items():
            source = Source.from_text(f"{split}/{name}", "".join(blocks))
            splits[split].append(source)
    return splits


def _topics() -> Iterator[tuple[str, list[str]]]:
    """Yields name and paragraphs of each topic, biggest first, without repeated paragraphs."""
    from pydoc_data import topics  # half a megabyte, imported on demand

    seen: set[str] = set()
    for name, content in sorted(topics.topics.items(), key=lambda item: (-len(item[1]), item[0])):
        paragraphs = [p.strip("\n") for p in content.split("\n\n") if p.strip()]
        fresh = [p for p in dict.fromkeys(paragraphs) if p not in seen]
        if sum(map(len, fresh)) * 2 >= sum(map(len, paragraphs)):
            yield name, fresh
            seen.update(fresh)


def _blocks(paragraphs: list[str]) -> Iterator[str]:
    """Yields joined paragraphs of the minimum length; the last block may be shorter."""
    block = ""
    for paragraph in paragraphs:
        block += paragraph + "\n\n"
        if len(block) >= _BLOCK_CHARACTERS:
            yield block
            block = ""
    if block:
        yield block
