// The path under which Plaza is mounted, empty at the root of the host: scripts are at `<root>/app/assets/<version>/`.
export const root = new URL(import.meta.url).pathname.replace(/\/app\/assets\/[^/]+\/[^/]+$/, "");
