// Shows the pictures of a post or an item large: arrow keys, Home and End change the picture, Escape closes.

const dialog = document.createElement("dialog");
dialog.className = "lightbox";
dialog.setAttribute("aria-label", "Picture");
dialog.innerHTML = `
<figure><img alt=""><figcaption></figcaption></figure>
<p class="lightbox-bar"><button type="button" data-step="-1">Previous</button> <span role="status"></span>
<button type="button" data-step="1">Next</button> <button type="button" data-close>Close</button></p>`;
document.body.append(dialog);

const image = dialog.querySelector("img"), caption = dialog.querySelector("figcaption"), position = dialog.querySelector("[role=status]");
let links = [], current = 0;

function show(index) {
  current = Math.min(Math.max(index, 0), links.length - 1);
  const small = links[current].querySelector("img:not(.blur)");
  // The size is known, so nothing moves when the picture arrives; until then the small one is shown.
  image.width = small.getAttribute("width");
  image.height = small.getAttribute("height");
  image.src = small.currentSrc || small.src;
  const large = new Image(), link = links[current];
  large.addEventListener("load", () => { if (links[current] === link) image.src = large.src; });
  large.src = link.href;
  image.alt = caption.textContent = small.alt;
  position.textContent = links.length > 1 ? `${current + 1} of ${links.length}` : "";
  for (const button of dialog.querySelectorAll("[data-step]")) {
    const next = current + Number(button.dataset.step);
    button.hidden = links.length === 1;
    // Not `disabled`: that would take the focus away, and with it the keys.
    button.setAttribute("aria-disabled", String(next < 0 || next >= links.length));
  }
}

export function open(link) {
  links = [...link.parentElement.querySelectorAll("[data-lightbox]")];
  show(links.indexOf(link));
  dialog.showModal();
}

const KEYS = { ArrowLeft: () => current - 1, ArrowRight: () => current + 1, Home: () => 0, End: () => links.length - 1 };

dialog.addEventListener("keydown", (event) => {
  if (!(event.key in KEYS)) return;
  event.preventDefault();
  show(KEYS[event.key]());
});

dialog.addEventListener("click", ({ target }) => {
  if (target.dataset.step) show(current + Number(target.dataset.step));
  else if (target === dialog || target.hasAttribute("data-close")) dialog.close();
});
