// Sends one file with progress, which `fetch` cannot report.

// Returns the response. `onProgress` gets numbers from 0 to 1. Rejects with the text of the problem.
export function upload(path, fields, file, onProgress) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  data.append("file", file, file.name || "picture");
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(total ? loaded / total : 0));
    request.addEventListener("error", () => reject(new Error("Plaza is not responding. Try again in a moment.")));
    request.addEventListener("load", () => (request.status < 400 ? resolve(request) : reject(new Error(problemText(request)))));
    request.open("POST", path);
    request.setRequestHeader("x-fragment", "1");
    request.setRequestHeader("accept", "text/html");
    request.send(data);
  });
}

function problemText(request) {
  if (request.status === 401) return "Your session has ended. Sign in again.";
  try {
    return JSON.parse(request.responseText).detail;
  } catch {
    return "Something went wrong. Try again in a moment.";
  }
}
