// What every page does: times in the reader's zone, the live stream, confirmations, copy buttons.
// On the document, because the elements of a renewed part are new.
import { times } from "./format.js";
import { follow } from "./live.js";

document.addEventListener("submit", (event) => {
  const text = event.target.dataset.confirm;
  if (text && !confirm(text)) event.preventDefault();
});

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // Not a secure context: select the text, so that the keys for copying work.
    getSelection().selectAllChildren(button.previousElementSibling);
    return;
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});

times();
setInterval(times, 10000);
follow();
