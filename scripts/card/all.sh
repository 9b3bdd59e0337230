#!/bin/sh
# Asks the card of this machine everything that is asked of a card, within ten minutes.
#
#   [LISTS="proof networks predicted"] [PUBLIC=FOLDER] scripts/card/all.sh RESULTS BIN PEERS [OLD]
#
# LISTS are those of trainings.py, and PUBLIC has checkouts of public scripts. Without a card it ends at once with code 3.
# BIN has conformance-cuda, bench-kernels and peer-vramlab (scripts/gpu-check.sh pack makes them), PEERS has peer_torch.py and peer_torch_tuned.py, OLD has
# the bench-kernels to compare with. First, side by side, what is not timed: trainings, cuDNN's workspaces, snapshots, the conformance suite, and PyTorch's
# compiler. Then, one after the other, what is: kernels, steps, contexts. RESULTS gets a file for each; a part that takes longer than its share is ended.
set -u
if ! nvidia-smi >/dev/null 2>&1; then
    echo "this machine has no NVIDIA card: nvidia-smi does not start" >&2
    exit 3
fi
results=$1 bin=$2 peers=$3 old=${4:-}
card=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results"
export PYTHONUNBUFFERED=1 VRAMLAB_CACHE=/tmp/vramlab-cache
# NVIDIA's libraries as PyTorch brought them, for the programs of this project alone.
found='import glob, site
print(":".join(sorted({path.rsplit("/", 1)[0] for packages in site.getsitepackages() for name in ("libnvrtc.so.1*", "libcublasLt.so.1*", "libcudnn.so.9") for path in glob.glob(packages + "/nvidia/*/lib/" + name)})))'
libraries=$(python3 -c "$found")
ours="env LD_LIBRARY_PATH=$libraries REQUIRE_DEVICE=cuda"
lists=$(printf -- ' --list %s' ${LISTS:-proof networks predicted})
[ -z "${PUBLIC:-}" ] || lists="$lists --list public --public $PUBLIC"
begin=$(date +%s)

# A part: its seconds at most, its name, its command.
part() {
    seconds=$1 name=$2
    shift 2
    timeout "$seconds" "$@" >"$results/$name.log" 2>&1
    echo "$name: exit code $?, at $(($(date +%s) - begin)) s: $(tail -n 1 "$results/$name.log" | cut -c 1-300)"
}

nvidia-smi >"$results/nvidia-smi.log" 2>&1
tail -n 12 "$results/nvidia-smi.log"
part 215 trainings python3 "$card/trainings.py" record "$results/trainings.json.gz" $lists --jobs 5 --seconds 150 &
for share in 1 2 3 4; do
    part 215 "workspaces-$share" python3 "$card/workspaces.py" "$results/workspaces-$share.json" --seconds 170 --share "$share/4" --tables "$card/../../lab/src/run/workspaces/tables" &
done
part 215 workspaces-modes python3 "$card/workspaces.py" "$results/workspaces-modes.json" --seconds 100 --modes deterministic,benchmark --types float32,bfloat16,float16 resnet50 48 mobilenet_v2 31 densenet121 24 convnext_tiny 17 &
part 100 plans python3 "$card/plans.py" "$results/plans.json" --seconds 80 --tables "$card/../../lab/src/run/workspaces/tables" &
part 170 conformance $ours "$bin/conformance-cuda" --quiet &
part 170 conformance-own-attention $ours VRAMLAB_CUDNN=0 "$bin/conformance-cuda" --quiet attention &
part 170 conformance-cudnn-attention $ours VRAMLAB_CUDNN=first "$bin/conformance-cuda" --quiet attention &
(
    part 90 snapshots python3 "$card/snapshots.py" "$results/snapshots"
    part 120 warm python3 "$card/steps.py" --warm "$peers"
) &
wait
tar -C "$results" -czf "$results/snapshots.tar.gz" snapshots && rm -r "$results/snapshots"
[ -z "$old" ] || part 60 kernels-old $ours CRITERION_HOME="$results/criterion-old" "$old/bench-kernels" --bench --backend cuda --noplot 'attention|layer_norm_grad|reduce_rows|copy'
part 60 kernels $ours CRITERION_HOME="$results/criterion" "$bin/bench-kernels" --bench --backend cuda --noplot 'attention|layer_norm_grad|reduce_rows|copy'
part 90 torch-kernels python3 "$card/../torch-kernels.py" "$results/criterion" "$results/kernels.json"
part 150 steps env VRAMLAB_LIBRARIES="$libraries" python3 "$card/steps.py" "$results/steps.jsonl" "$bin/peer-vramlab" "$peers" 1 0.5
part 90 contexts python3 "$card/contexts.py" "$results/contexts.json" processes nccl training kernels cudnn
tar -C "$results" -czf "$results/criterion.tar.gz" $(cd "$results" && echo criterion*) && rm -rf "$results"/criterion "$results"/criterion-old
tar -C "$results" -czf "$results/logs.tar.gz" $(cd "$results" && echo *.log) && rm "$results"/*.log
ls -l "$results"
