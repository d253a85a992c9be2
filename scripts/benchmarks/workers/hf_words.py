"""Worker of the data suite that prepares words with Hugging Face's TransfoXLTokenizer.

    PYTHON scripts/benchmarks/workers/hf_words.py    # with torch, transformers and sacremoses

A request is a line of JSON on stdin, its response a line on stdout; a failed request is answered
with {"error": LINE}.

    {"text_path": PATH, "ids_path": PATH} -> {"seconds": 2.5}

The work is that of TransfoXLCorpus.build_corpus for one split: count the words of the file, build
the vocabulary, read the file again for its ids. Saving them, by `np.save`, is not timed. Nothing
of the project is imported, as its requirements may be missing in the other environment.
"""

import json
import os
import sys
import time

import numpy as np
from transformers import TransfoXLTokenizer, logging


def _prepare(text_path: str, ids_path: str) -> dict[str, float]:
    tokenizer = TransfoXLTokenizer()
    start = time.perf_counter()
    tokenizer.count_file(text_path)
    tokenizer.build_vocab()
    ids = tokenizer.encode_file(text_path, ordered=True)
    seconds = time.perf_counter() - start
    np.save(ids_path, ids.numpy())
    return {"seconds": seconds}


def main() -> None:
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with responses
    logging.set_verbosity(logging.CRITICAL)  # the tokenizer warns at each line of the text
    for line in sys.stdin:
        try:
            response: dict[str, float | str] = {**_prepare(**json.loads(line))}
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(response), file=responses)


if __name__ == "__main__":
    main()
