// The page that compares jobs: one panel of curves over all of them.
import { makeCurves } from "./curves.js";

const panel = document.getElementById("curves"), runs = JSON.parse(document.getElementById("compared").dataset.runs);
const curves = makeCurves(panel, runs), EVERY_MS = 5000;

curves.read();
if (panel.dataset.isLive === "yes") setInterval(() => { if (!document.hidden) curves.read(); }, EVERY_MS);
