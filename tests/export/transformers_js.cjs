// SPDX-License-Identifier: Apache-2.0
// Runs exported directories in transformers.js. It reads a list of calls from standard input, each
// with the pipeline's task, the directory, the inputs and the options, and prints a JSON list.
// `NODE_PATH` must contain the package @huggingface/transformers.

const fs = require("node:fs");
const path = require("node:path");
const { env, pipeline } = require("@huggingface/transformers");

env.allowRemoteModels = false;

async function main() {
  const results = [];
  for (const { task, directory, inputs, options } of JSON.parse(fs.readFileSync(0, "utf8"))) {
    env.localModelPath = path.dirname(directory);
    const run = await pipeline(task, path.basename(directory), { dtype: "fp32", device: "cpu" });
    const answers = [];
    for (const input of inputs) {
      const answer = await run(...input, options);
      answers.push(answer.data ? Array.from(answer.data) : answer);
    }
    results.push(answers);
    await run.dispose();
  }
  process.stdout.write(JSON.stringify(results));
}

main();
