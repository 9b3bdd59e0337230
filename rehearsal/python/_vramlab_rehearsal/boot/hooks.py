"""What is done after a module of others was loaded: its name, and the function of this package that is then called with it."""

AFTER = {
    "argparse": "periods.after_argparse",
    "traceback": "script.after_traceback",
    "threading": "script.after_threading",
    "torch": "watch.after_torch",
    "torch.cuda._utils": "script.after_cuda_utilities",
    "safetensors._safetensors_rust": "withhold.after_safetensors_core",
    "safetensors.torch": "withhold.after_safetensors",
    "transformers.generation.utils": "withhold.after_generation",
    "transformers.modeling_utils": "made_up.after_modeling",
    "transformers.models.auto.tokenization_auto": "made_up.after_tokenizers",
    "transformers.tokenization_utils_base": "made_up.after_tokenizers",
    "timm.models._builder": "made_up.after_timm",
    "huggingface_hub.utils._http": "made_up.after_hub_http",
    "huggingface_hub.file_download": "made_up.after_hub_download",
    "datasets.load": "made_up_data.after_load",
    "datasets.arrow_dataset": "made_up_data.after_table",
    "pandas.io.parquet": "made_up_data.after_parquet",
    "pyarrow.parquet.core": "made_up_data.after_parquet",
    "torchvision.datasets.folder": "made_up_data.after_folder",
    "torchvision.datasets.mnist": "made_up_pictures.after_pictures",
    "torchvision.datasets.cifar": "made_up_pictures.after_pictures",
    "torchvision.datasets.svhn": "made_up_pictures.after_pictures",
    "torchvision.datasets.stl10": "made_up_pictures.after_pictures",
    "triton.runtime.jit": "watch.after_triton",
    "torch._inductor.runtime.triton_heuristics": "watch.after_triton",
    "urllib.request": "made_up.after_urllib",
    "huggingface_hub.hf_api": "withhold.after_hub",
    "wandb": "withhold.after_wandb",
    "mlflow": "withhold.after_mlflow",
}

# Where some ranks of many are started.
AFTER_IN_WORLD = {"torch.distributed.launcher.api": "world.after_launcher"}
