AFTER = {
    "traceback": after_traceback,
    "threading": after_threading,
    "torch": after_torch,
    "torch.cuda._utils": after_cuda_utilities,
    "safetensors._safetensors_rust": after_safetensors_core,
    "safetensors.torch": after_safetensors,
    "transformers.generation.utils": after_generation,
    "huggingface_hub.hf_api": after_hub,
    "wandb": after_wandb,
    "mlflow": after_mlflow,
}
if SETTINGS["world"]:
    AFTER["torch.distributed.launcher.api"] = after_launcher
for _name in ("traceback", "threading"):
    if _name in sys.modules:
        guarded(AFTER.pop(_name))(sys.modules[_name])
sys.meta_path.insert(0, Finder(AFTER))
sys.excepthook = without_own_frames(sys.excepthook)
guarded(write_whole)("%d.python" % os.getpid(), "")
users_own()
