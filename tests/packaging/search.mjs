// Ask the search of a built site, in the worker that a reader's browser runs. Prints the pages of each query, best first.
import { readFileSync, readdirSync } from "node:fs";

const site = process.argv[2];
const folder = `${site}/assets/javascripts/workers`;
const [name] = readdirSync(folder).filter((file) => /^search\..*\.min\.js$/.test(file));
const listeners = [];
let answer;
Object.assign(globalThis, {
  self: globalThis,
  location: { href: `file://${folder}/${name}` },
  importScripts: () => {},
  addEventListener: (_, listener) => listeners.push(listener),
  postMessage: (message) => answer(message),
});
(0, eval)(readFileSync(`${folder}/${name}`, "utf8"));

const ask = (type, data) =>
  new Promise((resolve) => {
    answer = resolve;
    listeners.forEach((listener) => listener({ data: { type, data } }));
  });
const [setup, query] = [0, 2];
await ask(setup, { ...JSON.parse(readFileSync(`${site}/search/search_index.json`, "utf8")), options: {} });
const pages = {};
for (const text of JSON.parse(readFileSync(0, "utf8"))) {
  const found = await ask(query, text);
  pages[text] = found.data.items.map((page) => page[0].location);
}
process.stdout.write(JSON.stringify(pages));
