"""The driver that trains any network (lab/src/any_model/driver): what it chooses from names and configurations, without PyTorch."""

from __future__ import annotations

import json
import sys
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

DRIVER = Path(__file__).resolve().parents[2] / "lab/src/any_model/driver"
sys.path.insert(0, str(DRIVER))

from vramlab_driver import classes, diffusion, graph, inputs, library, life, losses, names, program, run, tuning  # type: ignore[import-not-found]  # noqa: E402
from vramlab_driver.plan import Plan, Refused  # type: ignore[import-not-found]  # noqa: E402

OPTIONS: dict[str, Any] = {
    "batch": 2,
    "steps": 3,
    "optimizer": ["torch.optim.AdamW", "lr=1e-4"],
    "optimizer_impl": None,
    "precision": None,
    "accumulate": None,
    "clip": None,
    "zero_grad": None,
    "keep": None,
    "sequence": None,
    "head": None,
    "attention": None,
    "choices": None,
    "checkpoint": [],
    "bits": None,
    "lora": None,
    "lora_target": None,
    "lora_dropout": None,
    "modules_to_save": None,
    "lora_switches": [],
    "double_quant": False,
    "freeze": None,
    "loss": None,
    "phases": None,
}


def network(name: str, arguments: str, **config: Any) -> Any:
    """Facts of a class of this name, whose forward pass takes these arguments."""
    space: dict[str, Any] = {}
    exec(f"class {name}:\n    main_input_name = {arguments.split(',')[0]!r}\n    def forward(self, {arguments}): pass", space)
    return inputs.Facts(space[name], types.SimpleNamespace(**config))


def planned(facts: Any, image_tokens: Any = None, **options: Any) -> Any:
    plan = Plan("config.json", "transformers 5.17.0", facts.class_name)
    inputs.fill(plan, facts, {**OPTIONS, **options}, image_tokens or (lambda made: None))
    return plan


def expressions(plan: Any) -> dict[str, str]:
    return {one.name: one.expression for one in plan.inputs}


class Parameter:
    """A parameter without numbers."""

    requires_grad = True

    def requires_grad_(self, wanted: bool) -> None:
        self.requires_grad = wanted


class Losses(unittest.TestCase):
    def decoder(self, **config: Any) -> Any:
        return types.SimpleNamespace(config=types.SimpleNamespace(**config), base_model=object(), get_output_embeddings=lambda: object())

    def changed(self, name: str, loss: str, **config: Any) -> Any:
        plan = Plan("config.json", "transformers 5.17.0", name)
        losses.change(plan, self.decoder(**config), {**OPTIONS, "loss": loss})
        return plan

    def test_a_loss_in_parts_is_computed_again_in_backward(self) -> None:
        plan = self.changed("Gemma2ForCausalLM", "chunked:4", final_logit_softcapping=30.0)
        text = "\n".join(plan.forward)
        self.assertIn("zip(hidden.chunk(4), labels.reshape(-1).chunk(4))", text)
        self.assertIn("scores = torch.tanh(scores / 30.0) * 30.0", text)
        compile("def forward(model, batch):\n" + "\n".join(program.indented(plan.forward)), "<forward>", "exec")
        self.assertIn("hidden.chunk(1)", "\n".join(self.changed("Olmo2ForCausalLM", "checkpointed").forward))

    def test_other_networks_have_their_own_loss(self) -> None:
        with self.assertRaisesRegex(Refused, "--loss chunked: only decoders .*, not BertForMaskedLM"):
            self.changed("BertForMaskedLM", "chunked")


class Tuning(unittest.TestCase):
    def test_no_layer_is_dropped_at_random(self) -> None:
        plan, config = self.plan(), types.SimpleNamespace(layerdrop=0.1, encoder_layerdrop=0.0)
        library.keep_layers(plan, config)
        self.assertEqual((plan.build, config.layerdrop, len(plan.notes)), (["config.layerdrop = 0.0"], 0.0, 1))

    def plan(self) -> Any:
        return Plan("config.json", "transformers 5.17.0", "LlamaForCausalLM")

    def test_adapters_are_made_by_peft(self) -> None:
        with mock.patch.object(tuning, "needs"):
            imports, lines = tuning.adapters(self.plan(), {**OPTIONS, "lora": 8, "lora_target": "q_proj,v_proj", "lora_dropout": 0.1})
        self.assertEqual(imports, ["from peft import LoraConfig, get_peft_model"])
        config = "LoraConfig(r=8, target_modules=['q_proj', 'v_proj'], lora_dropout=0.1, task_type=\"CAUSAL_LM\")"
        self.assertEqual(lines, [f"model = get_peft_model(model, {config})"])

    def test_a_regular_expression_is_handed_to_peft_whole(self) -> None:
        with mock.patch.object(tuning, "needs"):
            _, lines = tuning.adapters(self.plan(), {**OPTIONS, "lora": 8, "lora_target": r"layers.[\d]+.(q|k)_proj"})
        self.assertIn(r"target_modules='layers.[\\d]+.(q|k)_proj'", lines[0])

    def test_what_is_missing_is_named(self) -> None:
        with mock.patch("importlib.util.find_spec", return_value=None), self.assertRaises(Refused) as caught:
            tuning.adapters(self.plan(), {**OPTIONS, "lora": 8})
        self.assertEqual((str(caught.exception), caught.exception.instead), ("--lora: this Python has no peft", "pip install peft"))

    def test_layers_that_can_be_adapted_are_proposed(self) -> None:
        linear = type("Linear", (), {})
        modules = [("blocks.0.qkv", linear()), ("blocks.1.qkv", linear()), ("head", linear()), ("norm", object())]
        self.assertEqual(tuning.layers(types.SimpleNamespace(named_modules=lambda: modules)), ["qkv", "head"])

    def test_few_bits_are_only_for_transformers_and_prepared_for_adapters(self) -> None:
        with mock.patch.object(tuning, "needs"):
            _, lines = tuning.bits(self.plan(), {**OPTIONS, "bits": 4, "lora": 8})
            self.assertIn("prepare_model_for_kbit_training", lines[-1])
            _, lines = tuning.bits(self.plan(), {**OPTIONS, "bits": 8})
            self.assertIn("load_in_8bit=True", "\n".join(lines))
            with self.assertRaisesRegex(Refused, "not of timm 1.0"):
                tuning.bits(Plan("vit", "timm 1.0", "VisionTransformer"), {**OPTIONS, "bits": 4})

    def test_the_last_pattern_decides_what_is_frozen(self) -> None:
        parameters = {name: Parameter() for name in ("embed.weight", "layers.0.a.weight", "layers.1.a.weight", "head.bias")}
        model = types.SimpleNamespace(named_parameters=lambda remove_duplicate=True: parameters.items())
        imports, lines = tuning.frozen(model, "*, !layers.1, !head")
        exec("\n".join([*imports, *lines]), {"model": model})
        self.assertEqual([name for name, one in parameters.items() if one.requires_grad], ["layers.1.a.weight", "head.bias"])
        with self.assertRaisesRegex(Refused, "no parameter is called tail; there are embed.weight"):
            tuning.frozen(model, "tail")

    def test_a_parameter_that_layers_share_is_frozen_by_each_of_its_names(self) -> None:
        shared, other = Parameter(), Parameter()
        every = [("lm_head.weight", shared), ("body.weight", other), ("embed.weight", shared)]
        model = types.SimpleNamespace(named_parameters=lambda remove_duplicate=True: every[:2] if remove_duplicate else every)
        for patterns, is_trained in (("embed", False), ("lm_head", False), ("*,!embed", True)):
            imports, lines = tuning.frozen(model, patterns)
            exec("\n".join([*imports, *lines]), {"model": model})
            self.assertEqual(shared.requires_grad, is_trained, patterns)


class Inputs(unittest.TestCase):
    def test_a_language_model_is_given_tokens_and_labels(self) -> None:
        plan = planned(network("ACausalLM", "input_ids, labels", vocab_size=1000, max_position_embeddings=4096))
        self.assertEqual(plan.tokens, 2048)
        self.assertEqual(expressions(plan)["labels"], "torch.randint(0, 1000, (BATCH, SEQUENCE))")
        short = planned(network("ACausalLM", "input_ids, labels", vocab_size=1000, max_position_embeddings=512))
        self.assertEqual(short.tokens, 512)
        asked = planned(network("ACausalLM", "input_ids, labels", vocab_size=1000, max_position_embeddings=4096), sequence=100)
        self.assertEqual((asked.tokens, asked.tokens_from), (100, "--sequence"))

    def test_more_tokens_than_positions_are_refused(self) -> None:
        facts = network("BertForMaskedLM", "input_ids, labels", vocab_size=10, max_position_embeddings=514)
        self.assertEqual(planned(facts).tokens, 512)
        with self.assertRaisesRegex(Refused, "--sequence 600: BertForMaskedLM has 512 positions"):
            planned(facts, sequence=600)

    def test_each_head_has_its_labels(self) -> None:
        sizes: dict[str, Any] = {"vocab_size": 30, "num_labels": 5, "max_position_embeddings": 64}
        texts = {
            "ForSequenceClassification": "torch.randint(0, 5, (BATCH,))",
            "ForTokenClassification": "torch.randint(0, 5, (BATCH, SEQUENCE))",
            "ForMultipleChoice": "torch.randint(0, 4, (BATCH,))",
            "ForMaskedLM": "torch.randint(0, 30, (BATCH, SEQUENCE))",
        }
        for head, labels in texts.items():
            self.assertEqual(expressions(planned(network("A" + head, "input_ids, labels", **sizes)))["labels"], labels, head)
        choice = planned(network("AForMultipleChoice", "input_ids, labels", **sizes), choices=3)
        self.assertEqual(expressions(choice)["input_ids"], "torch.randint(0, 30, (BATCH, 3, SEQUENCE))")
        answers = planned(network("AForQuestionAnswering", "input_ids, start_positions, end_positions", **sizes))
        self.assertIn("end_positions", expressions(answers))

    def test_an_embedder_is_trained_by_contrast(self) -> None:
        plan = planned(network("BertModel", "input_ids, attention_mask", vocab_size=30, max_position_embeddings=512))
        self.assertEqual(list(expressions(plan)), ["input_ids", "positive_ids"])
        self.assertIn("cross_entropy", plan.forward[-1])
        self.assertIn("contrastive", plan.loss)

    def test_pictures_and_sound(self) -> None:
        picture = planned(network("AForImageClassification", "pixel_values, labels", image_size=224, num_labels=10))
        self.assertEqual(expressions(picture)["pixel_values"], "torch.rand(BATCH, 3, 224, 224)")
        boxes = planned(network("AForObjectDetection", "pixel_values, labels", num_labels=91))
        self.assertTrue(boxes.inputs[-1].nested)
        config: dict[str, Any] = {"vocab_size": 32, "max_source_positions": 1500, "max_target_positions": 448, "num_mel_bins": 80}
        whisper = planned(network("WhisperForConditionalGeneration", "input_features, labels", **config))
        self.assertEqual(expressions(whisper)["input_features"], "torch.rand(BATCH, 80, 3000)")
        self.assertEqual(whisper.tokens, 448)

    def test_a_picture_stands_in_the_text(self) -> None:
        vision = types.SimpleNamespace(image_size=336, patch_size=14)
        facts = network(
            "AForConditionalGeneration",
            "input_ids, pixel_values, labels",
            vocab_size=32064,
            max_position_embeddings=4096,
            image_token_id=32000,
            vision_config=vision,
        )
        plan = planned(facts, lambda made: 2 * 576)
        self.assertIn("torch.full((BATCH, 576), 32000)", expressions(plan)["input_ids"])
        self.assertIn("a picture of 576 tokens", plan.head)
        with self.assertRaisesRegex(Refused, "--sequence 500: a picture takes 576 tokens"):
            planned(facts, lambda made: 2 * 576, sequence=500)
        without = planned(facts, lambda made: None)
        self.assertNotIn("pixel_values", expressions(without))
        sized = network("AForConditionalGeneration", "input_ids, pixel_values, image_sizes, labels", **vars(facts.config))
        plan = planned(sized, lambda made: None if "image_sizes" in [one.name for one in made] else 2 * 576)
        self.assertEqual(list(expressions(plan)), ["input_ids", "pixel_values", "labels"], "this part asks for no sizes")
        self.assertIn("without pictures", without.notes[0])

    def test_a_configuration_without_eyes_or_with_others_has_no_pictures(self) -> None:
        sizes: dict[str, Any] = {"vocab_size": 100, "hidden_size": 64, "image_token_id": 90}
        arguments = "input_ids, pixel_values, image_grid_thw, labels"
        blind = planned(network("AForConditionalGeneration", arguments, vision_config=None, **sizes))
        self.assertEqual(list(expressions(blind)), ["input_ids", "labels"])
        vision = types.SimpleNamespace(patch_size=14, out_hidden_size=32)
        other = planned(network("AForConditionalGeneration", arguments, vision_config=vision, **sizes))
        self.assertEqual(list(expressions(other)), ["input_ids", "labels"])
        self.assertIn("out_hidden_size is 32, and its text's hidden_size 64", other.notes[0])

    def test_a_class_that_takes_nothing_known_is_refused(self) -> None:
        with self.assertRaisesRegex(Refused, "takes molecule: none of these inputs is known"):
            planned(network("AModel", "molecule"))


class Diffusion(unittest.TestCase):
    def test_a_unet_and_a_transformer_of_pictures(self) -> None:
        plan = Plan("unet", "diffusers 0.42.1", "UNet2DConditionModel")
        config = {"sample_size": 64, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 768}
        diffusion.fill(plan, ["self", "sample", "timestep", "encoder_hidden_states"], config, OPTIONS)
        made = expressions(plan)
        self.assertEqual(made["sample"], "torch.randn(BATCH, 4, 64, 64)")
        self.assertEqual(made["encoder_hidden_states"], "torch.randn(BATCH, 77, 768)")
        flux = Plan("flux", "diffusers 0.42.1", "FluxTransformer2DModel")
        arguments = ["self", "hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "img_ids", "txt_ids", "guidance"]
        sizes = {"in_channels": 64, "joint_attention_dim": 4096, "pooled_projection_dim": 768, "guidance_embeds": True}
        diffusion.fill(flux, arguments, sizes, OPTIONS)
        self.assertLessEqual(set(arguments[1:]), set(expressions(flux)))


class Programs(unittest.TestCase):
    def test_every_setting_makes_a_program_that_compiles(self) -> None:
        plan = planned(network("ACausalLM", "input_ids, labels", vocab_size=1000))
        plan.build = ["return None"]
        for change in ({}, {"precision": "autocast-fp16", "clip": 1.0}, {"accumulate": 4, "zero_grad": "zero"}, {"keep": "loss"}):
            text = program.write(plan, {**OPTIONS, **change})
            compile(text, "program.py", "exec")
            self.assertIn("optimizer.step" if "clip" not in change else "scaler.step(optimizer)", text)
        self.assertIn("for _ in range(4):", program.write(plan, {**OPTIONS, "accumulate": 4}))
        for kind in ("torch.optim.SGD", "bitsandbytes.optim.AdamW8bit", "transformers.Adafactor"):
            text = program.write(plan, {**OPTIONS, "optimizer": [kind, "lr=1e-3"]})
            self.assertIn(f"optimizer = {kind}((p for p in model.parameters() if p.requires_grad), lr=1e-3)", text)
            self.assertIn(f"import {kind.split('.')[0]}\n", text)

    def phases(self, plan: Any, is_decoded: bool = False, **options: Any) -> str:
        plan.build = ["return None"]
        options = {**OPTIONS, "phases": 32, **options}
        model = types.SimpleNamespace(can_generate=lambda: True, generate=None, config=types.SimpleNamespace(is_encoder_decoder=is_decoded))
        life.change(plan, model, options)
        text: str = program.write(plan, options)
        compile(text, "program.py", "exec")
        return text

    def test_a_decoder_evaluates_generates_saves_and_resumes(self) -> None:
        facts = network("ACausalLM", "input_ids, labels", vocab_size=1000, max_position_embeddings=512)
        text = self.phases(planned(facts), precision="autocast-bf16")
        self.assertIn("32 new tokens after a prompt of 480", text)
        self.assertIn("batch[name][:, :SEQUENCE - 32] for name in ['input_ids']", text)
        self.assertIn('with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):', text)
        order = [
            text.index(call) for call in ("    evaluate(model)", "    generate(model)", "    save(model, optimizer)", "    resume(model)")
        ]
        self.assertEqual(order, sorted(order))
        self.assertNotIn("strict=False", text)
        adapted = self.phases(planned(facts), lora=8)
        self.assertIn("if part.requires_grad}", adapted)
        self.assertIn('load_state_dict(checkpoint["model"], strict=False)', adapted)

    def test_a_decoder_beside_an_encoder_gets_all_of_its_input(self) -> None:
        facts = network("BartForConditionalGeneration", "input_ids, labels", vocab_size=1000, max_position_embeddings=512)
        text = self.phases(planned(facts), is_decoded=True)
        self.assertIn("32 new tokens.", text)
        self.assertNotIn("SEQUENCE - 32", text)

    def test_more_new_tokens_than_an_example_has_are_refused(self) -> None:
        facts = network("ACausalLM", "input_ids, labels", vocab_size=1000, max_position_embeddings=512)
        with self.assertRaisesRegex(Refused, "--phases=512: prompt and new tokens together are 512 tokens"):
            self.phases(planned(facts), phases=512)

    def test_what_cannot_generate_has_the_other_phases(self) -> None:
        plan = planned(network("AForImageClassification", "pixel_values, labels", num_labels=5))
        plan.build = ["return None"]
        life.change(plan, types.SimpleNamespace(), {**OPTIONS, "phases": 32})
        text = program.write(plan, {**OPTIONS, "phases": 32})
        compile(text, "program.py", "exec")
        self.assertTrue("evaluate(model)" in text and "generate" not in text)

    def test_a_phase_that_fails_is_told_and_one_without_memory_ends_the_run(self) -> None:
        told: list[str] = []

        def generate(error: Exception) -> None:
            raise error

        run = life.told(generate, told.append)
        self.assertIsNone(run(TypeError("no cache")))
        self.assertEqual(told, ["the phase generate is not whole: TypeError: no cache"])
        with self.assertRaises(RuntimeError):
            run(RuntimeError("CUDA out of memory. Tried"))

    def test_lists_of_tensors_are_moved_one_by_one(self) -> None:
        plan = planned(network("AForObjectDetection", "pixel_values, labels", num_labels=91))
        plan.build = ["return None"]
        text = program.write(plan, OPTIONS)
        compile(text, "program.py", "exec")
        self.assertIn("to_card(value)", text)


class Llama4ForConditionalGeneration:
    """As in a release whose forward pass fails."""

    def forward(self, outputs: Any) -> Any:
        return outputs.image_outputs


class Blocks:
    """A part of a network that reads its configuration."""

    def __init__(self, config: Any) -> None:
        self.heads = config.heads
        self.blocks = config.budget // config.ratio


class Names(unittest.TestCase):
    def test_masks_of_time_are_a_loss_only_of_pretraining(self) -> None:
        def forward(self: Any, input_values: Any, mask_time_indices: Any) -> None:
            """As both take them."""

        found = {name: classes.has_loss(type(name, (), {"forward": forward})) for name in ("Wav2Vec2ForPreTraining", "HubertModel")}
        self.assertEqual(found, {"Wav2Vec2ForPreTraining": True, "HubertModel": False})

    def test_a_class_that_fails_by_itself_gives_way_to_that_of_its_text(self) -> None:
        library = types.SimpleNamespace(Llama4ForCausalLM=Blocks)
        found = classes.text_alone(library, Llama4ForConditionalGeneration)
        self.assertIs(found[0], Blocks)
        self.assertIn("asks for outputs.image_outputs, which no output has", found[1])
        self.assertIsNone(classes.text_alone(library, Blocks))

    def test_fields_that_a_configuration_leaves_empty_are_named(self) -> None:
        said = ""
        try:
            Blocks(types.SimpleNamespace(heads=2, budget=None, ratio=None, unread=None))
        except TypeError as error:
            said = run.left_empty(error)
        self.assertEqual(said, "; its configuration leaves empty: budget, ratio")
        self.assertEqual(run.left_empty(ValueError("no traceback")), "")

    def test_a_configuration_is_cut_with_its_lists(self) -> None:
        config = {"num_hidden_layers": 3, "layer_types": ["a", "b", "a"], "sizes": [1, 2]}
        source = names.Source("transformers", "x", config, "/config.json")
        names.cut(source, 2)
        self.assertEqual(source.config, {"num_hidden_layers": 2, "layer_types": ["a", "b"], "sizes": [1, 2]})
        self.assertIsNone(source.path, "the file has all layers")
        self.assertEqual(config["layer_types"], ["a", "b", "a"])

    def test_as_few_layers_are_traced_as_show_every_pair(self) -> None:
        self.assertEqual(graph.enough(["a"] * 48), 4)
        self.assertEqual(graph.enough((["a"] * 3 + ["b"]) * 6), 8)
        self.assertEqual(graph.enough(["dense"] + ["a"] * 20), 4)
        self.assertEqual(graph.enough(["a"] * 4), 0, "all of it is as few")
        self.assertEqual(graph.enough([str(number) for number in range(40)]), 0)

    def test_a_network_with_lists_of_boxes_has_no_graph(self) -> None:
        plan = planned(network("AForObjectDetection", "pixel_values, labels", num_labels=91))
        with self.assertRaisesRegex(Refused, "inputs are tensors"):
            graph.write(plan, None, OPTIONS, "", lambda layers: None)

    def test_a_function_must_be_in_a_file_that_exists(self) -> None:
        with self.assertRaisesRegex(Refused, "nowhere.py: no such file"):
            names.find("nowhere.py:make_model")
        source = names.find(f"{__file__}:planned")
        self.assertEqual((source.kind, source.member), ("function", "planned"))

    def test_files_that_name_no_network_are_refused(self) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(Refused, "has no config.json"):
                names.find(folder)
            config = Path(folder) / "config.json"
            for text, said in (("[]", "no JSON object|not a JSON object"), ("{", "config.json"), ('{"a": 1}', "names no network")):
                config.write_text(text)
                with self.assertRaisesRegex(Refused, said):
                    names.find(folder)
            (Path(folder) / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
            config.unlink()
            with self.assertRaisesRegex(Refused, "is an adapter"):
                names.find(folder)


class Sized:
    """A network as far as `graph.resize` sees it: parameters with shapes."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.shapes = shapes

    def named_parameters(self) -> list[tuple[str, Any]]:
        return [(name.replace("__", "."), types.SimpleNamespace(shape=shape)) for name, shape in self.shapes.items()]

    def named_buffers(self) -> list[tuple[str, Any]]:
        return []


class ResizeTest(unittest.TestCase):
    """A contact head of ESM-2 reads the attention of all layers: its weight is larger in the whole network."""

    def program(self, takes: str) -> Any:
        paths = {"p0": "head.weight", "p1": "network.embed.weight", "p2": "layers.0.weight"}
        specs = [{"parameter": {"arg": {"name": name}, "parameter_name": path}} for name, path in paths.items()]
        values = {name: {"dtype": 7, "sizes": [{"as_int": 4}]} for name in paths}
        node = {"target": "torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": takes}}}], "outputs": []}
        return {"graph_module": {"graph": {"nodes": [node], "tensor_values": values}, "signature": {"input_specs": specs}}}

    def resized(self, takes: str) -> dict[str, int]:
        program = self.program(takes)
        cut = Sized(head__weight=(4,), embed__weight=(4,), layers__0__weight=(4,))
        graph.resize(program, cut, Sized(head__weight=(12,), embed__weight=(4,), layers__0__weight=(9,)))
        return {name: meta["sizes"][0]["as_int"] for name, meta in program["graph_module"]["graph"]["tensor_values"].items()}

    def test_what_no_operator_takes_has_the_size_of_the_whole_network(self) -> None:
        self.assertEqual(self.resized("p1"), {"p0": 12, "p1": 4, "p2": 4})

    def test_what_an_operator_takes_is_not_folded(self) -> None:
        with self.assertRaisesRegex(graph.fold.Cannot, "head.weight has other sizes"):
            self.resized("p0")


if __name__ == "__main__":
    unittest.main()
