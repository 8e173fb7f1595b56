// A new avatar is uploaded when it is chosen. Then the profile is shown.

import { upload } from "./upload.js";

export function start(form, { showMessage }) {
  const input = form.elements.file;
  const send = async () => {
    const [file] = input.files;
    if (!file) return;
    const progress = document.createElement("progress");
    progress.max = 1;
    progress.value = 0;
    progress.setAttribute("aria-label", "Uploading the picture");
    form.append(progress);
    try {
      const fields = { csrf: form.elements.csrf.value, once: form.elements.once.value };
      const response = await upload(form.getAttribute("action"), fields, file, (part) => { progress.value = part; });
      location.assign(response.getResponseHeader("x-next"));
    } catch (error) {
      showMessage(error.message, true);
      input.value = "";
      progress.remove();
    }
  };
  input.addEventListener("change", send);
  send(); // what was chosen before this script was loaded
}
