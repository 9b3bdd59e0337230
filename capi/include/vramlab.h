/* How much GPU memory the training of a PyTorch network takes, asked in process. Link with -lvramlab_c.

   char *answer = vramlab_estimate("gpt2", "{\"batch\": 8, \"gpu\": \"rtx4090\"}");
   ... read the JSON ...
   vramlab_free(answer);

   All functions may be called by several threads at once. None prints, starts a process, or ends this one. An answer has the figures of
   `vramlab predict`, but for workspaces that `predict` asks the cuDNN of a PyTorch for: those are here once they were answered. */
#ifndef VRAMLAB_H
#define VRAMLAB_H

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface, "1.0": the first number changes when programs must change. Not to be freed. */
const char *vramlab_version(void);

/* What a training takes, as JSON of the schema vramlab-estimate-1 (docs/json.md): lower_bytes, expected_bytes and upper_bytes of the whole process, the
   same for each part in by_category, and fits.

   configuration: a network's name ("gpt2"), the path of a file that `vramlab predict` reads (config.json, model.pt2, TOML), or the text of a
   config.json. arguments: an object of JSON with fields of a run by name, as "batch", "sequence", "gpu", "optimizer", "precision", "checkpoint"
   (`vramlab predict --help` lists them); NULL for none. Both are UTF-8.

   A problem is an answer, too: {"schema": …, "error": {"kind": "usage" | "resource" | "internal", "message": …}}.
   The answer is to be freed with vramlab_free. It is NULL only if there is no memory for it. */
char *vramlab_estimate(const char *configuration, const char *arguments);

/* Frees an answer. NULL is ignored. */
void vramlab_free(char *answer);

#ifdef __cplusplus
}
#endif

#endif
