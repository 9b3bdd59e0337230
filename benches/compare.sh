#!/usr/bin/env bash
# Runs the workloads of `peer-vramlab`, candle, burn and PyTorch's fastest options in turn, workload by workload.
#
#   benches/compare.sh FOLDER RESULTS.jsonl [ROUNDS]
#
# FOLDER has the other programs: torch/peer_torch_tuned.py, run by $TORCH_PYTHON (python3), and, if they were built (candle with `gemm/x86-v4`, burn
# with `flex-avx512`), target/candle/release/peer-candle and target/burn/release/peer-burn. Every line of RESULTS.jsonl is one program's; of the lines of
# one program and workload the median round counts, and of PyTorch's options the best. Each program runs for two
# seconds a workload after its start: a quarter of an hour or more for three rounds, on a quiet machine.
set -euo pipefail
folder=${1:?FOLDER} results=${2:?RESULTS.jsonl} rounds=${3:-3}
python=${TORCH_PYTHON:-python3} threads=${THREADS:-$(nproc)}
cd "$(dirname "$0")/.."
cargo build --profile dist -p benches --bin peer-vramlab
ours=${CARGO_TARGET_DIR:-target}/dist/peer-vramlab
workloads="mlp simplecnn-b32 simplecnn-b128 smallcnn64 gpt-mini resnet18-b8 gemm-256 gemm-512 gemm-1024 gemm-2048 elementwise"

torch() { # options, then the workload; with the heap kept from step to step
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 "$python" "$folder/torch/peer_torch_tuned.py" --threads "$threads" "$@" || echo "{\"peer\":\"torch\",\"error\":\"$*\"}"
}
try() { if [ -x "$1" ]; then "$@" || echo "{\"peer\":\"$(basename "$1")\",\"error\":\"$*\"}"; fi; }

{
    model=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)
    echo "{\"host\":{\"cpu\":\"$model\",\"cores\":$(nproc),\"date\":\"$(date -u +%FT%TZ)\",\"flags\":\"$(grep -om1 -E 'amx_bf16|avx512_bf16' /proc/cpuinfo || true)\"}}"
    for round in $(seq "$rounds"); do
        for work in $workloads; do
            echo "{\"round\":$round,\"load\":$(cut -d' ' -f1 /proc/loadavg)}"
            try "$folder/target/candle/release/peer-candle" "$work"
            try "$folder/target/burn/release/peer-burn" --device flex "$work"
            "$ours" "$work"
            case $work in
            gemm-*) torch --inplace "$work"; torch --inplace --bf16 "$work"; "$ours" --precision bf16 "$work" ;;
            elementwise) torch --inplace "$work" ;;
            simplecnn* | smallcnn* | resnet*)
                torch --fused "$work"; torch --fused --channels-last "$work"
                torch --fused --channels-last --autocast "$work"; "$ours" --precision autocast-bf16 "$work" ;;
            *)
                torch --fused "$work"; [ "$work" != gpt-mini ] || torch --fused --sdpa "$work"
                torch --fused --autocast "$work"; "$ours" --precision autocast-bf16 "$work" ;;
            esac
        done
    done
} > "$results"
