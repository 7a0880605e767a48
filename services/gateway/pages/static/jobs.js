// The list of jobs: the button to compare shows when two are chosen, and says how many.
const button = document.getElementById("compare"), MAX = 10;

function count() {
  const num = document.querySelectorAll("input[name=job]:checked").length;
  button.hidden = num < 2;
  button.disabled = num > MAX;
  button.textContent = num > MAX ? `At most ${MAX} jobs can be compared` : `Compare ${num} jobs`;
}
document.addEventListener("change", count);
addEventListener("pageshow", count); // the browser keeps what was chosen when a reader goes back
count();
