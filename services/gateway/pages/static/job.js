// The page of one job: its charts, logs and what its pods use, read again while it runs.
import { makeCurves } from "./curves.js";
import { listen } from "./live.js";
import { makeLogs } from "./logs.js";
import { makeMedia } from "./media.js";
import { makeSystem } from "./system.js";
import { makeWindows } from "./windows.js";

const head = document.getElementById("head"), panel = document.getElementById("curves"), logs = document.getElementById("logs");
const curves = makeCurves(panel, [{ id: document.body.dataset.job, label: document.title }]);
const readLogs = makeLogs(logs), readSystem = makeSystem(document.getElementById("system")), readMedia = makeMedia(document.getElementById("media")), readWindows = makeWindows(document.getElementById("windows")), EVERY_MS = 2000, ROUNDS_AFTER_END = 5;
let rounds = 0;

function look() {
  if (document.hidden) return;
  const isLive = head.dataset.isLive;
  panel.dataset.isLive = logs.dataset.isLive = isLive;
  if (isLive !== "yes" && rounds++ >= ROUNDS_AFTER_END) return;
  curves.read();
  readLogs();
  readSystem();
  readMedia();
  readWindows();
}
listen((type) => { if (/^(run\.|checkpoint\.restored|reset|reopened)/.test(type)) { rounds = 0; curves.restart(); } });
look();
setInterval(look, EVERY_MS);
