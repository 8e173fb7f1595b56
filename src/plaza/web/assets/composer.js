// Pictures of a new post: chosen, pasted or dropped; uploaded at once, with progress; described; removed.
//
// After a post the form is replaced by an empty one, so the listeners are on the document.

import { randomId, root } from "./root.js";
import { upload } from "./upload.js";

const MAX_PICTURES = 4;

const composer = () => document.getElementById("new-post");
const list = () => document.getElementById("attachments");
const isPicture = (file) => file.type.startsWith("image/");

let showMessage = () => {};

function template(html) {
  const element = document.createElement("template");
  element.innerHTML = html; // safe: our own texts, or a fragment of the server
  return element.content.firstElementChild;
}

// The post waits until its pictures are uploaded.
function updateButton() {
  const form = composer();
  form.querySelector("button.primary").disabled = form.querySelector("progress") !== null;
}

function addPictures(files) {
  const pictures = [...files].filter(isPicture);
  const room = MAX_PICTURES - list().children.length;
  if (pictures.length > room) showMessage(`A post has at most ${MAX_PICTURES} pictures.`, true);
  for (const file of pictures.slice(0, room)) addPicture(file);
}

function addChosen(input) {
  addPictures(input.files);
  input.value = ""; // the same file can be chosen again
}

async function addPicture(file) {
  const preview = URL.createObjectURL(file);
  const row = template('<li class="attachment"><img alt=""><progress max="1" value="0"></progress></li>');
  row.querySelector("img").src = preview;
  row.querySelector("progress").setAttribute("aria-label", `Uploading ${file.name}`);
  list().append(row);
  updateButton();
  try {
    const fields = { csrf: composer().elements.csrf.value, once: randomId() };
    const response = await upload(`${root}/app/media`, fields, file, (part) => { row.querySelector("progress").value = part; });
    row.replaceWith(template(response.responseText));
    showMessage("Picture added.");
  } catch (error) {
    row.remove();
    showMessage(`${file.name}: ${error.message}`, true);
  } finally {
    URL.revokeObjectURL(preview);
    updateButton();
  }
}

export function start(form, helpers) {
  showMessage = helpers.showMessage;
  document.addEventListener("change", ({ target }) => {
    if (target.id === "pictures") addChosen(target);
  });
  addChosen(form.elements.file); // what was chosen before this script was loaded
  document.addEventListener("paste", (event) => {
    if (!composer()?.contains(event.target) || ![...event.clipboardData.files].some(isPicture)) return;
    event.preventDefault();
    addPictures(event.clipboardData.files);
  });
  document.addEventListener("dragover", (event) => {
    const over = composer()?.contains(event.target) && event.dataTransfer.types.includes("Files");
    composer()?.classList.toggle("dropping", over);
    if (over) event.preventDefault();
  });
  document.addEventListener("dragleave", (event) => {
    if (!composer()?.contains(event.relatedTarget)) composer()?.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    if (!composer()?.contains(event.target)) return;
    event.preventDefault();
    composer().classList.remove("dropping");
    addPictures(event.dataTransfer.files);
  });
  document.addEventListener("click", ({ target }) => {
    if (!target.matches("[data-remove-attachment]")) return;
    target.closest(".attachment").remove();
    document.getElementById("content").focus();
  });
}
