"""Prepares words with Hugging Face's TransfoXLTokenizer, for scripts/benchmarks/suites/data.py.

    PYTHON scripts/benchmarks/workers/hf_words.py    # with torch, transformers and sacremoses

A request is a line of JSON on stdin, its answer one on stdout; one that fails is answered with
{"error": LINE}.

    {"text_path": PATH, "ids_path": PATH}    {"seconds": 2.5}

The work is that of TransfoXLCorpus.build_corpus for one split: count the words of the file, build
the vocabulary, read the file again for its ids, which are then saved as `np.save` does. Saving is
not counted. Nothing of the project is imported: the other environment need not have what it needs.
"""

import json
import os
import sys
import time

import numpy as np
from transformers import TransfoXLTokenizer, logging


def _answer(text_path: str, ids_path: str) -> dict[str, float]:
    tokenizer = TransfoXLTokenizer()
    start = time.perf_counter()
    tokenizer.count_file(text_path)
    tokenizer.build_vocab()
    ids = tokenizer.encode_file(text_path, ordered=True)
    seconds = time.perf_counter() - start
    np.save(ids_path, ids.numpy())
    return {"seconds": seconds}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    logging.set_verbosity(logging.CRITICAL)  # it warns of itself, and at each line of the text
    for line in sys.stdin:
        try:
            answer: dict[str, float | str] = {**_answer(**json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
