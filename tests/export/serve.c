/* SPDX-License-Identifier: Apache-2.0 */
/* Serves one batch of texts as TensorFlow Serving would: no Python, TensorFlow's C API alone.
 *
 * serve MODEL INPUT OUTPUT LABEL SCORE LIBRARY... -- TEXT...
 *   INPUT, OUTPUT  the names of operations; LABEL, SCORE  which outputs of OUTPUT they are
 *   LIBRARY        TensorFlow Text's operations
 * Prints a line "label<TAB>score" for each text, then how a scalar text is answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static TF_Status* status;

static void expect_ok(const char* what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

static TF_Tensor* strings(char** texts, int64_t count, int dimensions) {
  TF_Tensor* tensor = TF_AllocateTensor(TF_STRING, &count, dimensions, count * sizeof(TF_TString));
  TF_TString* values = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; i++) {
    TF_StringInit(&values[i]);
    TF_StringCopy(&values[i], texts[i], strlen(texts[i]));
  }
  return tensor;
}

static TF_Output output(TF_Graph* graph, const char* name, int index) {
  TF_Output found = {TF_GraphOperationByName(graph, name), index};
  if (found.oper) return found;
  fprintf(stderr, "no operation %s\n", name);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 8) return 2;
  status = TF_NewStatus();
  int next = 6;
  for (; next < argc && strcmp(argv[next], "--") != 0; next++) {
    TF_LoadLibrary(argv[next], status);
    expect_ok(argv[next]);
  }
  char** texts = argv + next + 1;
  int64_t count = argc - next - 1;

  TF_Graph* graph = TF_NewGraph();
  const char* tags[] = {"serve"};
  TF_Session* session = TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[1], tags, 1,
                                                     graph, NULL, status);
  expect_ok("load");

  TF_Output input = output(graph, argv[2], 0);
  TF_Output outputs[] = {output(graph, argv[3], atoi(argv[4])),
                         output(graph, argv[3], atoi(argv[5]))};
  TF_Tensor* answers[2];
  TF_Tensor* batch = strings(texts, count, 1);
  TF_SessionRun(session, NULL, &input, &batch, 1, outputs, answers, 2, NULL, 0, NULL, status);
  expect_ok("run");
  const TF_TString* labels = TF_TensorData(answers[0]);
  const float* scores = TF_TensorData(answers[1]);
  for (int64_t i = 0; i < count; i++) {
    fwrite(TF_StringGetDataPointer(&labels[i]), 1, TF_StringGetSize(&labels[i]), stdout);
    printf("\t%.9g\n", scores[i]);
  }

  TF_Tensor* scalar = strings(texts, 1, 0);
  TF_SessionRun(session, NULL, &input, &scalar, 1, outputs, answers, 2, NULL, 0, NULL, status);
  printf("scalar: %s\n", TF_GetCode(status) == TF_INVALID_ARGUMENT ? "invalid argument" : "?");
  return 0;
}
