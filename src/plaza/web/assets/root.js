// The path under which Plaza is mounted, empty at the root of the host: scripts are at `<root>/app/assets/<version>/`.
export const root = new URL(import.meta.url).pathname.replace(/\/app\/assets\/[^/]+\/[^/]+$/, "");

// An id that no one else has. `crypto.randomUUID` does not exist on plain http, except from the same machine.
export const randomId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
