"""Networks of timm and torchvision."""

from . import library
from .plan import Plan, Refused, literal, precision, shaped


def plan_of(source, options):
    """Returns the plan, and the network, built without weights."""
    plan = of_timm(source) if source.kind == "timm" else of_torchvision(source)
    plan.dtype_from = "default; --precision TYPE"
    if options["precision"]:
        plan.dtype, plan.dtype_from = precision(options["precision"])[0], "--precision"
    plan.build = ["return %s.to(torch.%s)" % (plan.build[0], plan.dtype)]
    model, how = library.built(plan)
    library.parameters_of(plan, model, how)
    plan.class_name = type(model).__name__ + " (%s)" % source.member
    if source.kind == "timm":
        size = tuple((getattr(model, "pretrained_cfg", None) or {}).get("input_size") or (3, 224, 224))
        pictures(plan, size, getattr(model, "num_classes", 0))
    else:
        by_kind(plan, source.member, model)
    library.as_the_network(plan)
    return plan, model


def of_timm(source):
    import timm

    plan = Plan(source.name, "timm " + timm.__version__, source.member)
    plan.imports = ["import timm"]
    classes = (source.config or {}).get("num_classes")
    more = ", num_classes=%d" % classes if isinstance(classes, int) and classes > 0 else ""
    arguments = (source.config or {}).get("model_args") or {}
    more += ", **%s" % literal(arguments) if arguments else ""
    plan.build = ["timm.create_model(%r%s)" % (source.member, more)]
    return plan


def of_torchvision(source):
    import torchvision

    if source.member not in torchvision.models.list_models():
        raise Refused("torchvision %s has no network %s" % (torchvision.__version__, source.member))
    plan = Plan(source.name, "torchvision " + torchvision.__version__, source.member)
    plan.imports = ["import torchvision"]
    backbone = ", weights_backbone=None" if "rcnn" in source.member or "fcos" in source.member or "ssd" in source.member or "retinanet" in source.member \
        or source.member.startswith(("fcn_", "deeplab", "lraspp")) else ""
    plan.build = ["torchvision.models.get_model(%r, weights=None%s)" % (source.member, backbone)]
    return plan


def pictures(plan, size, classes):
    if not classes:
        raise Refused("%s has no classifier: it computes features only" % plan.class_name, "vramlab predict make_model.py:make_model")
    plan.add("pixel_values", "torch.rand(BATCH, %s)" % ", ".join(map(str, size)), "batch x " + shaped(*size), "float32")
    plan.add("labels", "torch.randint(0, %d, (BATCH,))" % classes, "batch", "int64")
    plan.forward = ['outputs = model(batch["pixel_values"])',
                    "logits = outputs if isinstance(outputs, torch.Tensor) else outputs[0]",
                    'loss = torch.nn.functional.cross_entropy(logits, batch["labels"])']
    plan.loss = "cross-entropy of %d classes" % classes


def by_kind(plan, name, model):
    """Detectors take lists of pictures with boxes, segmentation takes a class for each pixel, video takes 16 frames."""
    if "rcnn" in name or name.startswith(("fcos", "ssd", "retinanet")):
        masks = ', "masks": torch.zeros(8, 800, 800, dtype=torch.uint8)' if name.startswith("mask") else ""
        masks += ', "keypoints": torch.rand(8, 17, 3)' if name.startswith("keypoint") else ""
        plan.add("images", "[torch.rand(3, 800, 800) for _ in range(BATCH)]", "batch of 3 x 800 x 800", "float32", nested=True)
        box = "torch.tensor([[100.0, 100.0, 300.0, 300.0]] * 8)"
        plan.add("targets", '[{"boxes": %s, "labels": torch.ones(8, dtype=torch.long)%s} for _ in range(BATCH)]' % (box, masks),
                 "8 boxes in each picture", "", nested=True)
        plan.forward = ["outputs = model(**batch)", "loss = sum(outputs.values())"]
        plan.loss = "the sum of the detector's own losses"
        plan.evaluation = 'outputs = model(batch["images"])'
        return
    if name.startswith(("fcn_", "deeplab", "lraspp")):
        plan.add("pixel_values", "torch.rand(BATCH, 3, 520, 520)", "batch x 3 x 520 x 520", "float32")
        plan.add("labels", "torch.randint(0, 21, (BATCH, 520, 520))", "batch x 520 x 520", "int64")
        plan.forward = ['outputs = model(batch["pixel_values"])["out"]', 'loss = torch.nn.functional.cross_entropy(outputs, batch["labels"])']
        plan.loss = "cross-entropy of each pixel"
        return
    if name.startswith("raft"):
        raise Refused("%s compares two pictures: give a function that makes it and its inputs" % name, "vramlab predict make_model.py:make_model")
    video = name.startswith(("r3d", "mc3", "r2plus1d", "s3d", "mvit", "swin3d"))
    side = 299 if name == "inception_v3" else 112 if name.startswith(("r3d", "mc3", "r2plus1d")) else 224
    pictures(plan, (3, 16, side, side) if video else (3, side, side), 400 if video else 1000)
