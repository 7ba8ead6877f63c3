// Runs the planner beside the page: Python as WebAssembly, and the library in it.
import { loadPyodide } from "./pyodide/pyodide.mjs";

// What is large is compressed in the site, since not every server compresses: NAME is fetched as NAME.packed.
const fetched = self.fetch.bind(self);
self.fetch = async (resource, options) => {
  const address = String(resource);
  if (!/\.(wasm|zip)$/.test(address)) {
    return fetched(resource, options);
  }
  const packed = await fetched(`${address}.packed`, options);
  if (!packed.ok) {
    throw new Error(`${address}.packed: ${packed.status} ${packed.statusText}`);
  }
  const type = address.endsWith(".wasm") ? "application/wasm" : "application/zip";
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": type } });
};

const nearby = (name) => new URL(name, import.meta.url).href;

async function start() {
  const library = self.fetch(nearby("planner.zip")).then((answer) => answer.arrayBuffer());
  library.catch(() => {});
  const python = await loadPyodide({ indexURL: nearby("pyodide/"), stdin: () => null });
  python.unpackArchive(await library, "zip");
  return python.pyimport("planner").answer;
}

const started = start();
started.then(
  () => self.postMessage({ ready: true }),
  (error) => self.postMessage({ failed: error.message ?? String(error) }),
);

self.onmessage = async ({ data }) => {
  try {
    const answer = await started;
    const { machine, config, pods, asked } = data;
    self.postMessage({ number: data.number, answer: JSON.parse(answer(machine, config, pods, asked)) });
  } catch (error) {
    self.postMessage({ number: data.number, answer: { error: `The planner failed: ${error}` } });
  }
};
