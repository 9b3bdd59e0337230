"""Networks of transformers with weights of bitsandbytes and adapters of PEFT, in the order of a script that loads them onto the card.

Options of a case: `quantization` (arguments of BitsAndBytesConfig), `lora` (arguments of LoraConfig). With `quantization`, linear layers are replaced as
`from_pretrained` replaces them, the network is moved to the card, and `prepare_model_for_kbit_training` converts the rest before adapters are made there."""


def quantized(model, arguments):
    """Replaces the linear layers; their weights are quantized when they are moved to the card."""
    import torch
    from transformers import BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear

    arguments = dict(arguments)
    if "bnb_4bit_compute_dtype" in arguments:
        arguments["bnb_4bit_compute_dtype"] = getattr(torch, arguments["bnb_4bit_compute_dtype"])
    config = BitsAndBytesConfig(**arguments)
    weights = {name: module for name, module in model.named_modules() if hasattr(module, "weight")}
    kept = [name for name, module in model.named_modules() if module is model.get_output_embeddings()]
    kept += [name for name in ("score", "classifier", "qa_outputs") if hasattr(model, name)]
    model.config.quantization_config = config
    model = replace_with_bnb_linear(model, modules_to_not_convert=kept, quantization_config=config)
    for name, module in model.named_modules():
        if type(module).__name__ in ("Linear4bit", "Linear8bitLt"):
            filled(module, weights[name])
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = config.load_in_4bit, config.load_in_8bit
    model.is_quantized = True
    return model


def filled(module, before):
    """Gives a layer that was made on `meta` the values of the layer before it."""
    import torch

    value = before.weight.data
    value = value.T.contiguous() if type(before).__name__ == "Conv1D" else value
    module.weight = type(module.weight)(value, requires_grad=False, **{key: kept for key, kept in module.weight.__dict__.items() if key not in ("CB", "SCB")})
    if before.bias is not None:
        module.bias = torch.nn.Parameter(before.bias.data, requires_grad=False)


def put_on_card(model, options):
    """The network on the card, with what the options ask for."""
    if options.get("quantization"):
        from peft import prepare_model_for_kbit_training

        model = quantized(model, options["quantization"]).to("cuda")
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if options.get("lora"):
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(**options["lora"]))
    return model.to("cuda")
