// Creates elements without HTML strings, so a text can never become markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

// A docstring as paragraphs, with the parts in backticks as code.
export function paragraphs(text) {
  return text.split(/\n\s*\n/).map((paragraph) => h("p", {}, inline(paragraph)));
}

export function inline(text) {
  return text.split(/(`[^`]+`)/).map((part) => (/^`.+`$/.test(part) ? h("code", {}, part.slice(1, -1)) : part));
}

export function copyButton(text) {
  const button = h("button", { type: "button", class: "plain small" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1200);
  });
  return button;
}
