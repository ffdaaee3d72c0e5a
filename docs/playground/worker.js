"use strict";

// Runs the program once for each message, with the files of the message as its file system. Lines of its output, its
// complaints and the bytes that it has read go to the page.

const slice = 4 << 20; // bytes that are read from a file at once

const error = (code) => Object.assign(new Error(code), { code });

// fileSystem replaces that of wasm_exec.js: files can be read, and the output is passed on.
function fileSystem(files) {
  const reader = new FileReaderSync(), decoder = new TextDecoder(), open = new Map();
  let next = 3, line = "";
  const stat = (file) => ({
    mode: 0o100444, size: file.size, isDirectory: () => false,
    dev: 0, ino: 0, nlink: 1, uid: 0, gid: 0, rdev: 0, blksize: slice, blocks: 0, atimeMs: 0, mtimeMs: 0, ctimeMs: 0,
  });
  const named = (path, done, then) => files.has(path) ? done(null, then(files.get(path))) : done(error("ENOENT"));
  const refuse = (...args) => args.at(-1)(error("ENOENT"));
  return {
    constants: { O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_TRUNC: 512, O_APPEND: 1024, O_EXCL: 128, O_DIRECTORY: 65536 },
    open: (path, flags, mode, done) => named(path, done, (file) => (open.set(next, { file, at: 0, from: 0, held: new Uint8Array() }), next++)),
    close: (fd, done) => done(open.delete(fd) ? null : error("EBADF")),
    stat: (path, done) => named(path, done, stat),
    lstat: (path, done) => named(path, done, stat),
    fstat: (fd, done) => open.has(fd) ? done(null, stat(open.get(fd).file)) : done(error("EBADF")),
    readdir: refuse, mkdir: refuse, unlink: refuse,
    read(fd, buffer, offset, length, position, done) {
      const o = open.get(fd), at = position ?? o.at;
      if (at < o.from || at >= o.from + o.held.length) {
        o.from = at;
        try {
          o.held = new Uint8Array(reader.readAsArrayBuffer(o.file.slice(at, at + slice)));
        } catch {
          return done(error("EIO"));
        }
        postMessage({ file: o.file.name, read: at + o.held.length });
      }
      const part = o.held.subarray(at - o.from, at - o.from + length);
      buffer.set(part, offset);
      if (position === null) o.at += part.length;
      done(null, part.length);
    },
    write(fd, buffer, offset, length, position, done) {
      const text = decoder.decode(buffer.subarray(offset, offset + length), { stream: fd === 1 });
      if (fd === 1) {
        const lines = (line + text).split("\n");
        line = lines.pop();
        lines.forEach((l) => postMessage({ result: JSON.parse(l) }));
      } else {
        postMessage({ problem: text });
      }
      done(null, length);
    },
    writeSync: (fd, buffer) => (postMessage({ problem: decoder.decode(buffer) }), buffer.length),
  };
}

// compiled fetches the program, which is compressed.
async function compiled(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`cannot load ${url}: ${response.status} ${response.statusText}`);
  let bytes = await response.arrayBuffer();
  if (new Uint8Array(bytes)[0] === 0x1f) {
    bytes = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }
  return WebAssembly.compile(bytes);
}

onmessage = async ({ data: { base, module, args, files } }) => {
  try {
    if (!module) {
      module = await compiled(base + "edge.wasm.gz");
      postMessage({ module });
    }
    globalThis.fs = fileSystem(files ?? new Map());
    importScripts(base + "wasm_exec.js");
    const go = new Go();
    let status = 0;
    go.argv = ["playground", ...args];
    go.exit = (code) => { status = code; };
    const instance = await WebAssembly.instantiate(module, go.importObject);
    await go.run(instance);
    postMessage({ status });
  } catch (e) {
    postMessage({ problem: `${e.message ?? e}\n`, status: 2 });
  }
};
