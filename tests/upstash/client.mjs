// Asks Plaza through the official client, as any program would, and prints what came back as one line of JSON.
//   node client.mjs URL TOKEN POST
import { Redis } from "@upstash/redis";

const [url, token, post] = process.argv.slice(2);
const redis = new Redis({ url, token, retry: false });
const plain = new Redis({ url, token, retry: false, responseEncoding: false, automaticDeserialization: false });

// What a call comes to: its answer, or the name and text of the error that it ends with.
const outcome = async (work) => {
  try {
    return await work();
  } catch (error) {
    return { error: error.name, message: error.message };
  }
};

const told = {};
told.ping = await redis.ping();
told.written = await redis.hset("user:me", { theme: "dark", on: true, n: 41, big: "9007199254740993", wide: "Zoë 🎪 日本" });
told.object = await redis.hset("user:me", { object: { a: [1, 2] } });
told.counted = await redis.hincrby("user:me", "n", 1);
told.mine = await redis.hgetall("user:me");
told.some = await redis.hmget("user:me", "theme", "wide", "none");
told.text = await plain.hget("user:me", "big");
told.others = await redis.hget("user:bob", "display_name");
told.feed = await redis.zrange("explore:feed", 0, 9, { rev: true, withScores: true });
told.byScore = await redis.zrange("explore:feed", "-inf", "+inf", { byScore: true, offset: 0, count: 5 });
told.likes = (await redis.smembers(`post:${post}:likes`)).sort();
told.scanned = (await redis.sscan(`post:${post}:likes`, 0, { count: 10 }))[1].sort();
told.comments = await redis.lrange(`post:${post}:comments`, 0, -1);
told.exists = await redis.exists("explore:feed", "users:models");
told.at_once = await Promise.all([redis.hget("user:me", "theme"), redis.scard(`post:${post}:likes`), redis.zcard("explore:feed")]);
told.pipeline = await redis.pipeline().hget("user:me", "theme").hset("user:me", { theme: "light" }).hget("user:me", "theme").exec();
told.kept = await redis.pipeline().hget("user:me", "theme").get("auth:ana").exec({ keepErrors: true });
told.transaction = await redis.multi().hset("user:me", { theme: "blue" }).hincrby("user:me", "n", 8).hget("user:me", "theme").exec();
told.refused_one = await outcome(() => redis.hgetall("user:bob"));
told.refused_piped = await outcome(() => redis.pipeline().ping().hset("user:me", { role: "admin" }).exec());
told.refused_whole = await outcome(() => redis.multi().hset("user:me", { theme: "red" }).sadd("user:me:following", "bob").exec());
told.after = await redis.hget("user:me", "theme");
told.wrong_type = await outcome(() => redis.get("explore:feed"));
told.not_an_integer = await outcome(() => redis.hincrby("user:me", "theme", 1));
told.removed = await redis.hdel("user:me", "theme", "on", "n", "big", "wide", "object");
told.stranger = await outcome(() => new Redis({ url, token: "nobody", retry: false }).ping());
console.log(JSON.stringify(told));
