# One image that makes everything. It was never built where it was written: there was neither Docker nor a GPU.
#   docker build -t pwagents . && docker run --gpus all -v "$PWD/outputs:/pwagents/outputs" pwagents
#   docker run --gpus all -v "$PWD/outputs:/pwagents/outputs" pwagents make reproduce PRESET=paper
FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS tools
# Python with its headers and a C compiler, in which triton builds its kernels; git fetches data and names the commit.
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends \
  ca-certificates gcc git make python3-dev python3-venv && rm -r /var/lib/apt/lists/*

FROM tools
WORKDIR /pwagents
COPY . .
# No GPU is seen while an image is built. A flag keeps pip's own build of torch, which has CUDA, and no copy of it.
RUN make setup TORCH_FLAGS=--no-cache-dir && .venv/bin/playwright install-deps chromium
CMD ["make", "reproduce"]
