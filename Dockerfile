# syntax=docker/dockerfile:1
# Holdfast without an app: `docker build --tag holdfast:0.1.0 .`. Your own image starts with `FROM holdfast:0.1.0` and
# copies your modules to /app; docs/operate/deploy.md shows it. Every package is pinned and checked by its hash.
#   --build-arg PINS=all   with all extras: redis, nats, sqs, storage, images, traces
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG PINS=runtime
WORKDIR /build
COPY constraints/ constraints/
RUN pip install --no-cache-dir --require-hashes -r constraints/build.txt \
 && python -m venv --without-pip /opt/holdfast \
 && pip --python /opt/holdfast/bin/python install --no-cache-dir --require-hashes -r "constraints/${PINS}.txt"
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/holdfast/bin/python install --no-cache-dir --no-deps --no-index dist/*.whl

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin holdfast \
 && install --directory --owner=holdfast --group=holdfast --mode=0700 /var/lib/holdfast
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOLDFAST_DATA_DIR=/var/lib/holdfast \
    HEALTH_URL=http://127.0.0.1:8080/livez
WORKDIR /app
USER 10001:10001
EXPOSE 8080 9464
# For a worker: HEALTH_URL=http://127.0.0.1:9464/livez and `--metrics-port 9464`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
# In this form the command is process 1 and receives the signal to stop.
CMD ["holdfast", "serve", "--host", "0.0.0.0"]
