"""What a script would send to others is withheld; what it does besides steps is noted."""

import contextlib

from .answer import ANSWERS_HERE
from .phases import GENERATION, SAVING

# Functions of the hub's client that change something on the hub.
HUB_CHANGES = (
    "create_repo create_branch create_tag create_commit create_commits_on_pr create_pull_request create_discussion "
    "create_collection delete_repo delete_file delete_files delete_folder delete_branch delete_tag move_repo upload_file "
    "upload_folder upload_large_folder preupload_lfs_files super_squash_history update_repo_settings "
    "update_repo_visibility merge_pull_request comment_discussion add_space_secret request_space_hardware"
).split()


def withheld(what):
    for answer in ANSWERS_HERE:
        if what not in answer.withheld and len(answer.withheld) < 1000:
            answer.withheld.append(what)


def after_hub(module):
    """Pushes nothing to the hub; callers get an answer that looks real."""

    def replaced(name):
        def method(_api, *args, **kwargs):
            repository = kwargs.get("repo_id") or next((a for a in args if isinstance(a, str) and "/" in a), "rehearsal/rehearsal")
            # Without an owner the repository is the user's own.
            repository = repository if "/" in repository else "rehearsal/%s" % repository
            withheld("hub: %s %s" % (name, repository))
            url = "https://huggingface.co/%s" % repository
            if name == "create_repo":
                return module.RepoUrl(url)
            answer = module.CommitInfo(commit_url=url + "/commit/" + "0" * 40, commit_message="", commit_description="",
                                       oid="0" * 40)
            if kwargs.get("run_as_future"):
                from concurrent.futures import Future

                future = Future()
                future.set_result(answer)
                return future
            return answer

        return method

    for name in HUB_CHANGES:
        if hasattr(module.HfApi, name):
            setattr(module.HfApi, name, replaced(name))
            if hasattr(module, name):
                # The module's functions are bound methods of one object: bind the replacement to it.
                setattr(module, name, getattr(module.api, name))


def after_wandb(module):
    """Starts a run that sends nothing, whatever the script requests."""
    start = module.init

    def init(*args, **kwargs):
        withheld("wandb")
        kwargs["mode"] = "disabled"
        return start(*args, **kwargs)

    module.init = init
    module.login = lambda *args, **kwargs: True


def after_mlflow(module):
    """Sends runs to a folder, which is withheld like any other, and to no server."""
    choose = module.set_tracking_uri

    def set_tracking_uri(uri):
        if "://" in str(uri) and not str(uri).startswith(("file:", "sqlite:")):
            withheld("mlflow: %s" % uri)
            return None
        return choose(uri)

    module.set_tracking_uri = set_tracking_uri


def after_safetensors_core(module):
    """Lets Python write in place of the library's writer, which renames files by direct system calls that cannot be withheld."""
    serialize = module.serialize

    def serialize_file(tensor_dict, filename, metadata=None):
        with open(filename, "wb") as file:
            file.write(serialize(tensor_dict, metadata=metadata))

    if hasattr(module, "serialize_file"):
        module.serialize_file = serialize_file


def after_safetensors(module):
    for name in ("save_file", "save_model"):
        save = getattr(module, name, None)
        if save is None:
            continue

        def saved(*args, _save=save, **kwargs):
            with contextlib.ExitStack() as stack:
                for answer in ANSWERS_HERE:
                    answer.seen["saving"] = True
                    stack.enter_context(answer.reads_for_a_file())
                    stack.enter_context(answer.phases.inside(SAVING))
                return _save(*args, **kwargs)

        setattr(module, name, saved)


def after_generation(module):
    generate = module.GenerationMixin.generate
    import functools

    @functools.wraps(generate)
    def generated(*args, **kwargs):
        with contextlib.ExitStack() as stack:
            for answer in ANSWERS_HERE:
                answer.seen["generation"] = True
                stack.enter_context(answer.phases.inside(GENERATION))
            return generate(*args, **kwargs)

    module.GenerationMixin.generate = generated


