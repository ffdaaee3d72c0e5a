"use strict";

const $ = (id) => document.getElementById(id);
const base = new URL(".", location.href).href;
const fileNames = { edge: "rules.yaml", nginx: "nginx.conf", "ingress-nginx": "ingress.yaml", "envoy-ratelimit": "ratelimit.yaml" };
const maxLink = 16 << 10, maxRules = 1 << 20; // bytes

let module = null; // the compiled program
let job = null; // the run that goes on
let logs = []; // files; if empty, the log is the pasted text

const show = (id, shown) => { $(id).hidden = !shown; };
const element = (tag, text, cls) => Object.assign(document.createElement(tag), { textContent: text, className: cls ?? "" });
const count = (n, thing) => `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;

// start runs the program in a worker of its own, so that it can be stopped and its memory is freed. The worker comes
// from a blob because it then has the policy of this page, which forbids connections to other servers.
function start(args, files, on) {
  const source = new Blob([`importScripts(${JSON.stringify(base + "worker.js")})`], { type: "text/javascript" });
  const url = URL.createObjectURL(source);
  const worker = new Worker(url);
  worker.onmessage = ({ data }) => {
    if (data.module) module = data.module;
    if (data.status !== undefined) worker.terminate();
    on(data);
  };
  worker.onerror = (e) => {
    worker.terminate();
    on({ problem: `${e.message || "the program cannot be started"}\n`, status: 2 });
  };
  worker.postMessage({ base, module, args, files });
  return () => worker.terminate();
}

function run() {
  stop("");
  for (const id of ["problems", "imported", "meaning", "reports", "advice"]) show(id, false);
  $("tabs").replaceChildren();
  $("pages").replaceChildren();
  $("problems").textContent = "";
  const kind = $("kind").value, config = fileNames[kind], files = new Map();
  if (!$("config").value.trim()) return problem("edge: no rules given\nedge: hint: paste rules, or choose an example\n");
  let read = logs;
  if (!read.length && $("log").value.trim()) read = [new File([$("log").value], "access.log")];
  read.forEach((f) => files.set(f.name, f));
  files.set(config, new File([$("config").value], config));
  const format = $("format").value.trim(), names = read.map((f) => f.name), began = performance.now();
  const jobs = [["rules", kind, format, config, ...names]];
  if (read.length) jobs.push(["sweep", format, ...names]);
  const total = jobs.length * read.reduce((n, f) => n + f.size, 0), seen = new Map();
  let left = jobs.length, failed = false;
  show("cancel", true);
  show("progress", read.length > 0);
  $("progress").value = 0;
  $("state").textContent = "Running";
  const stops = jobs.map((args, i) => start(args, files, (m) => {
    if (m.problem && !$("problems").textContent.includes(m.problem)) problem(m.problem); // the jobs read the same log
    if (m.result) receive(m.result);
    if (m.read && m.file !== config) {
      seen.set(i + m.file, m.read);
      const sum = [...seen.values()].reduce((a, b) => a + b, 0);
      $("progress").value = sum / (total || 1);
      $("state").textContent = `${(sum / jobs.length / 1e6).toFixed(0)} of ${(total / jobs.length / 1e6).toFixed(0)} MB read`;
    }
    if (m.status === undefined) return;
    failed ||= m.status !== 0;
    if (--left === 0 || (failed && i === 0)) {
      stop(failed ? "Failed" : `Done in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    }
  }));
  job = () => stops.forEach((end) => end());
}

function stop(text) {
  job?.();
  job = null;
  show("cancel", false);
  show("progress", false);
  $("state").textContent = text;
}

function problem(text) {
  $("problems").textContent += text;
  show("problems", true);
}

// receive shows a line of the program's output.
function receive({ imported, check, text, report }) {
  if (imported) {
    $("imported-text").textContent = imported;
    show("imported", true);
  }
  if (check) {
    $("rules").replaceChildren(...check.rules.map(described));
    $("rules").dataset.json = JSON.stringify(check);
    show("meaning", check.errors.length === 0);
  }
  if (text) $("text").textContent = text;
  if (report) add(report);
}

function described(r) {
  const card = element("div", "", "card rule");
  const notes = r.limits.filter((l) => l.worst_case).map((l) =>
    `${count(l.threshold, "request")} in ${count(l.period_s, "second")}; at worst, ${l.worst_case.toLocaleString("en")} pass`);
  const list = element("ul", "");
  list.append(...notes.concat(r.notes).map((n) => element("li", n)));
  card.append(element("div", `${r.id} (${r.action})`, "title"), element("p", r.meaning), list);
  return card;
}

const titles = { rules: "Whom these rules refuse", sweep: "Which threshold to choose", overview: "The log" };

// add adds a report: the page that edge replay writes, in a frame without scripts.
function add({ name, page, json }) {
  const title = titles[name];
  const frame = Object.assign(element("iframe", ""), { id: name === "rules" ? "enforcement" : name, title, srcdoc: page, hidden: true });
  frame.sandbox = "allow-same-origin";
  frame.onload = () => {
    const root = frame.contentDocument.documentElement;
    const fit = () => { if (!frame.hidden) frame.style.height = `${root.offsetHeight + 2}px`; };
    new ResizeObserver(fit).observe(root);
    fit();
  };
  frame.dataset.json = JSON.stringify(json);
  const tab = Object.assign(element("button", title), { type: "button" });
  const select = () => {
    for (const f of $("pages").children) f.hidden = f !== frame;
    for (const t of $("tabs").children) t.setAttribute("aria-pressed", t === tab);
    frame.style.height = `${frame.contentDocument.documentElement.offsetHeight + 2}px`;
  };
  tab.onclick = select;
  tab.style.order = Object.keys(titles).indexOf(name);
  $("tabs").append(tab);
  $("pages").append(frame);
  if (name === "rules" || $("tabs").children.length === 1) select();
  show("reports", true);
  if (name === "sweep") advise(json);
}

// advise shows the limit that the sweep recommends.
function advise({ curves, max_clients_pct: most }) {
  const best = curves.find((c) => c.best && c.recommended);
  if (!best) return;
  const cell = best.cells.find((c) => c.threshold === best.recommended);
  $("advice-text").textContent = `Recommended: ${count(best.recommended, "request")} in ${count(best.period_s, "second")}. ` +
    `Of the tried thresholds, it is the smallest that affects at most ${most}% of the clients. It would have refused ` +
    `${count(cell.refused, "request")} from ${count(cell.clients, "client")}.`;
  $("try").onclick = () => set("edge", `rules:\n  - id: all\n    characteristics: [ip]\n` +
    `    limits: [{threshold: ${best.recommended}, period: ${best.period_s}s}]\n    mitigation_timeout: 0s\n`);
  show("advice", true);
}

// turn returns a function that reports whether no other turn of this kind has begun since: the result of an older click
// must not replace that of a newer one.
const turns = {};
function turn(kind) {
  const mine = turns[kind] = (turns[kind] ?? 0) + 1;
  return () => turns[kind] === mine;
}

// set puts rules into the editor.
function set(kind, text) {
  $("kind").value = kind;
  $("config").value = text;
  $("config").focus();
  $("config").setSelectionRange(0, 0);
  $("config").scrollTop = 0;
}

function choose(files) {
  logs = [...files];
  $("names").textContent = logs.map((f) => `${f.name} (${Math.ceil(f.size / 1000).toLocaleString("en")} kB)`).join(", ");
  show("chosen", logs.length > 0);
  show("log", logs.length === 0);
}

async function openConfig(file) {
  if (file.size > maxRules) return problem(`edge: ${file.name} is too long for rules: a log goes to the other side\n`);
  const last = turn("rules"), text = await file.text();
  if (last()) set(guess(text) ?? $("kind").value, text);
}

// guess returns for which program a configuration is written, if that is clear.
function guess(text) {
  if (/nginx\.ingress\.kubernetes\.io\//.test(text)) return "ingress-nginx";
  if (/^\s*(-\s*)?descriptors:/m.test(text)) return "envoy-ratelimit";
  if (/^\s*(limit_req|limit_req_zone|http|server)\b[^:]*[{;]/m.test(text)) return "nginx";
  if (/^\s*["']?(rules|allow|deny)["']?:/m.test(text)) return "edge";
}

function droppable(id, take) {
  const card = $(id);
  for (const type of ["dragover", "dragleave", "drop"]) {
    card.addEventListener(type, (e) => {
      if (![...e.dataTransfer.types].includes("Files")) return;
      e.preventDefault();
      card.classList.toggle("over", type === "dragover");
      if (type === "drop") take(e.dataTransfer.files);
    });
  }
}

// A link has the rules in its fragment, which browsers do not send: JSON, compressed, in base64url.
async function piped(bytes, stream, most) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader(), parts = [];
  for (let size = 0, part; !(part = await reader.read()).done; parts.push(part.value)) {
    if ((size += part.value.length) > most) throw new Error("too long");
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function link() {
  const last = turn("link"), state = JSON.stringify([$("kind").value, $("config").value, $("format").value]);
  const bytes = await piped(state, new CompressionStream("deflate-raw"), Infinity);
  if (!last()) return;
  if (bytes.length > maxLink) return void ($("state").textContent = "These rules are too long for a link");
  const text = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  history.replaceState(null, "", `#${text}`);
  let done = "Copied the link";
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    done = "The link is in the address bar";
  }
  if (last()) $("state").textContent = done;
}

async function follow() {
  if (location.hash.length < 2) return;
  const last = turn("rules");
  try {
    const text = atob(location.hash.slice(1).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
    const [kind, config, format] = JSON.parse(new TextDecoder().decode(await piped(bytes, new DecompressionStream("deflate-raw"), maxRules)));
    if (!last()) return;
    set(kind in fileNames ? kind : "edge", String(config));
    $("format").value = String(format);
  } catch {
    if (last()) problem("edge: the link is damaged\nedge: hint: copy the whole link\n");
  }
}

async function example(value) {
  if (!value) return;
  const last = turn("rules"), [kind, config, log] = value.split(" ");
  const [text, lines] = await Promise.all([fetch(`examples/${config}`).then((r) => r.text()), fetch(`examples/${log}`).then((r) => r.blob())]);
  if (!last()) return;
  set(kind, text);
  choose([new File([lines], log)]);
  run();
}

function begin() {
  $("form").onsubmit = (e) => { e.preventDefault(); run(); };
  $("form").onkeydown = (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) run(); };
  $("cancel").onclick = () => stop("Cancelled");
  $("link").onclick = link;
  $("adopt").onclick = () => set("edge", $("imported-text").textContent);
  $("forget").onclick = () => { choose([]); $("log-files").value = ""; };
  $("example").onchange = (e) => example(e.target.value);
  $("log-files").onchange = (e) => choose(e.target.files);
  $("config-file").onchange = (e) => openConfig(e.target.files[0]);
  $("config").onpaste = (e) => { $("kind").value = guess(e.clipboardData.getData("text")) ?? $("kind").value; };
  droppable("rules-card", (files) => openConfig(files[0]));
  droppable("log-card", choose);
  onhashchange = follow;
  start([], null, ({ result, problem: text }) => {
    if (text) problem(text);
    for (const kind of result?.kinds ?? []) $("kind").append(new Option(kind, kind));
    for (const f of result?.formats ?? []) $("formats").append(Object.assign(new Option(f.about, f.name)));
    if (result) follow();
  });
}

if (location.protocol === "file:") {
  show("local", true);
  $("run").disabled = true;
} else {
  begin();
}
