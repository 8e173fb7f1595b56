// Reads Plaza's events with a consumer group: it can be stopped at any time, and goes on where it was.
//
//     npm install redis && node examples/events/consumer.mjs redis://localhost:6379 social my-service
//
// Several of these processes with the same group share the events.

import { hostname } from "node:os";
import { createClient } from "redis";

const CLAIM_AFTER_MS = 60_000; // a consumer that is silent for a minute has died

const [url, domain, group] = process.argv.slice(2);
const stream = `events:${domain}`, consumer = `${hostname()}-${process.pid}`;
const client = await createClient({ url }).connect();

// Creates the group at the start of the stream, unless it exists.
await client.xGroupCreate(stream, group, "0", { MKSTREAM: true }).catch((error) => {
  if (!error.message.includes("BUSYGROUP")) throw error;
});

async function handle({ id, message }) {
  // Do your work here. It may run twice for one event, so make it repeatable.
  console.log(message.type, message.subject, message.data);
  await client.xAck(stream, group, id); // only now: an event that was not handled is delivered again
}

for (;;) {
  const claimed = await client.xAutoClaim(stream, group, consumer, CLAIM_AFTER_MS, "0-0", { COUNT: 100 });
  for (const entry of claimed.messages) if (entry) await handle(entry);
  const reply = await client.xReadGroup(group, consumer, { key: stream, id: ">" }, { COUNT: 100, BLOCK: 5000 });
  for (const entry of reply?.[0]?.messages ?? []) await handle(entry);
}
