#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "vramlab.h"

static void *ask(void *answer) {
  *(char **)answer = vramlab_estimate("two-layer", "{\"batch\": 8, \"gpu\": \"rtx4090\"}");
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  char *answers[4];
  const char *problems[4][2] = {{NULL, NULL}, {"no-such", NULL}, {"two-layer", "[1]"}, {"\xff", "{}"}};
  int i;
  for (i = 0; i < 4; i++)
    if (pthread_create(&threads[i], NULL, ask, &answers[i])) return 1;
  for (i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    if (!answers[i]) return 1;
    puts(answers[i]);
    vramlab_free(answers[i]);
  }
  for (i = 0; i < 4; i++) {
    char *answer = vramlab_estimate(problems[i][0], problems[i][1]);
    if (!answer) return 1;
    puts(answer);
    vramlab_free(answer);
  }
  vramlab_free(NULL);
  return strcmp(vramlab_version(), "1.0") != 0;
}
