# One image for every part of voiceprobe: the command decides which part a container is.
# Without a patch number, so that each build has the corrections of Python and Debian; the locks pin everything else.
FROM python:3.11-slim-trixie

# The dashboard, the sidecar and the callers need no more than Python; what the locks name comes as wheels.
WORKDIR /voiceprobe
COPY requirements.lock requirements-bootstrap.lock ./
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements-bootstrap.lock \
    && uv pip sync --system --no-cache --require-hashes requirements.lock \
    && useradd --create-home --uid 10001 voiceprobe \
    && install --directory --owner voiceprobe --mode 0700 /var/lib/voiceprobe \
    && printf '#!/bin/sh\nexec python -m loadtest.cli.main "$@"\n' > /usr/local/bin/voiceprobe \
    && chmod 0755 /usr/local/bin/voiceprobe

COPY corpora corpora
COPY telemetry telemetry
COPY loadtest loadtest
COPY dashboard dashboard

ENV PYTHONPATH=/voiceprobe \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# By number, so that an orchestrator sees that it is not root.
# No VOLUME: each container that stores nothing would leave a volume without a name behind.
USER 10001
# The sidecar stores everything that it acknowledged before it ends.
STOPSIGNAL SIGTERM

# `docker compose up` names the command of each part; alone, the image says what it can do.
CMD ["voiceprobe", "--help"]
