# A container that runs the command line without a network: see docs/operations.md.
FROM python:3.12-slim

WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt requirements.txt ./
COPY src src
COPY docs/proofs docs/proofs
# What a fit needs, by hash; then charts and ONNX, by version.
RUN python -m pip install --no-cache-dir --require-hashes --requirement requirements.txt \
    && python -m pip install --no-cache-dir --constraint constraints.txt ".[report,onnx]" && rm -rf /build

RUN useradd --uid 10001 --create-home discreet
USER discreet
# Compile kernels now, not at the first fit of every container.
ENV NUMBA_CACHE_DIR=/home/discreet/kernels
RUN discreet warmup
WORKDIR /data
ENTRYPOINT ["discreet"]
CMD ["--help"]
