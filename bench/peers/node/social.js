// The social service in the usual way of Node: express and ioredis on the documented keys.
//
//     REDIS_URL=… JWT_SECRET=… CACHE_SECONDS=30 node social.js PORT
//
// Written as a good engineer would write it: what can go in one pipeline does, what belongs together is a transaction,
// lists are kept in memory for CACHE_SECONDS per viewer (0: never). With the cache off an answer is as fresh as Plaza's, so
// the home feed is built for each page. It does less than Plaza: no blocks and mutes, no events, search or
// notifications, no stable cursors. Counters are counted, so a race can make them wrong, and scores change only when
// someone clicks.
//
// TUNED=1 is for a service whose engineer profiled it: `jwt.verify` with a string first tries to parse it as a public key,
// which costs more than the rest of a request, so the secret becomes a key object; and there are no security headers
// (helmet, cors) and no log line per request.
import crypto from "node:crypto";
import process from "node:process";
import cors from "cors";
import express from "express";
import helmet from "helmet";
import { Redis } from "ioredis";
import jwt from "jsonwebtoken";
import { LRUCache } from "lru-cache";
import pinoHttp from "pino-http";

const { REDIS_URL, JWT_SECRET, CACHE_SECONDS = "30", TUNED } = process.env;
const secret = TUNED ? crypto.createSecretKey(Buffer.from(JWT_SECRET)) : JWT_SECRET;
const redis = new Redis(REDIS_URL, { enableAutoPipelining: true });
const RANKED_MS = 14 * 86_400_000;
const HOME_SECONDS = 60;
const PUBLIC = ["username", "display_name", "bio", "avatar", "links", "role", "postCount", "followerCount", "followingCount", "created_at"];
const READABLE = new Set(["HGETALL", "HGET", "HMGET", "ZREVRANGE", "ZRANGE", "ZCARD", "SMEMBERS", "SCARD", "SISMEMBER"]);

class HttpError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Who asks.
function viewer(required) {
  return (req, res, next) => {
    const header = req.headers.authorization;
    if (!header) return required ? next(new HttpError(401, "Missing token")) : next();
    try {
      req.user = jwt.verify(header.slice("Bearer ".length), secret, { algorithms: ["HS256"] });
      return next();
    } catch {
      return next(new HttpError(401, "Invalid token"));
    }
  };
}
const signedIn = viewer(true);
const anyone = viewer(false);

// Lists in memory, by viewer and address.
const cache = Number(CACHE_SECONDS) > 0 ? new LRUCache({ max: 10_000, ttl: Number(CACHE_SECONDS) * 1000 }) : null;
async function cached(req, make) {
  if (cache === null) return make();
  const key = `${req.user?.username ?? ""} ${req.originalUrl}`;
  let found = cache.get(key);
  if (found === undefined) {
    found = await make();
    cache.set(key, found);
  }
  return found;
}

// The replies of a pipeline or transaction; the first error stops.
function replies(results) {
  return results.map(([error, reply]) => {
    if (error) throw error;
    return reply;
  });
}

const number = (value) => Number(value ?? 0);
const tagsOf = (content) => [...new Set((content.match(/#[\p{L}\p{N}_]+/gu) ?? []).map((tag) => tag.slice(1).toLowerCase()))];

function scoreOf(likes, comments, bookmarks, created) {
  const age = Date.now() - created;
  return age > RANKED_MS ? 0 : (likes * 3 + comments * 5 + bookmarks * 4) / (age / 3_600_000 + 1);
}

function shownPost(post, isLiked, isBookmarked) {
  return {
    id: post.id,
    user_id: post.user_id,
    username: post.username,
    display_name: post.display_name ?? "",
    avatar: post.avatar ?? "",
    user_role: post.user_role,
    content: post.content,
    media_url: post.media_url ?? null,
    hashtags: tagsOf(post.content),
    created_at: number(post.created_at),
    likesCount: number(post.likesCount),
    commentsCount: number(post.commentsCount),
    bookmarksCount: number(post.bookmarksCount),
    isLiked,
    isBookmarked,
  };
}

function shownUser(values) {
  const user = { id: values[0] };
  PUBLIC.forEach((field, i) => {
    user[field] = field.endsWith("Count") || field === "created_at" ? number(values[i]) : (values[i] ?? "");
  });
  return user;
}

// Posts with their authors and the viewer's flags, in two round trips.
async function feedItems(ids, name) {
  if (ids.length === 0) return [];
  const reads = redis.pipeline();
  for (const id of ids) reads.hgetall(`post:${id}`);
  if (name) {
    for (const id of ids) reads.sismember(`post:${id}:likes`, name);
    reads.zmscore(`user:${name}:bookmarked`, ...ids);
  }
  const found = replies(await reads.exec());
  const posts = found.slice(0, ids.length);
  const liked = name ? found.slice(ids.length, -1) : [];
  const bookmarked = name ? found.at(-1) : [];
  const authors = [...new Set(posts.map((post) => post.user_id).filter(Boolean))];
  const users = redis.pipeline();
  for (const author of authors) users.hmget(`user:${author}`, ...PUBLIC);
  const rows = replies(await users.exec());
  const cards = new Map(authors.map((author, i) => [author, shownUser(rows[i])]));
  const items = [];
  posts.forEach((post, i) => {
    if (!post.id || post.banned === "true") return;
    const flags = [liked[i] === 1, name ? bookmarked[i] !== null : false];
    items.push({ post: shownPost(post, ...flags), user: cards.get(post.user_id) });
  });
  return items;
}

function page(req) {
  const limit = Math.min(Math.max(Number.parseInt(req.query.limit ?? "20", 10) || 20, 1), 100);
  const offset = Math.max(Number.parseInt(req.query.offset ?? "0", 10) || 0, 0);
  return { limit, offset };
}

async function feedPage(ids, name, { limit, offset }) {
  const posts = await feedItems(ids, name);
  return { posts, pagination: { limit, offset, count: posts.length, hasMore: ids.length === limit } };
}

// A page of a sorted set of post ids, the highest score first.
function sortedFeed(keyOf) {
  return async (req, res) => {
    const { limit, offset } = page(req);
    res.json(
      await cached(req, async () => {
        const ids = await redis.zrevrange(keyOf(req), offset, offset + limit - 1);
        return feedPage(ids, req.user?.username, { limit, offset });
      }),
    );
  };
}

async function changeLike(req, res, on) {
  const { id } = req.params;
  const name = req.user.username;
  const reads = redis.pipeline();
  reads.hmget(`post:${id}`, "user_id", "user_role", "content", "created_at", "likesCount", "commentsCount", "bookmarksCount", "banned");
  reads.sismember(`post:${id}:likes`, name);
  const [[author, role, content, created, likes, comments, bookmarks, banned], member] = replies(await reads.exec());
  if (author === null || banned === "true") throw new HttpError(404, "Post not found");
  if (Boolean(member) === on) return res.json({ id, changed: false, isLiked: on, likesCount: number(likes) });
  const step = on ? 1 : -1;
  const likesCount = number(likes) + step;
  const writes = redis.multi();
  if (on) writes.sadd(`post:${id}:likes`, name);
  else writes.srem(`post:${id}:likes`, name);
  writes.hincrby(`post:${id}`, "likesCount", step);
  const score = scoreOf(likesCount, number(comments), number(bookmarks), number(created));
  for (const tag of tagsOf(content)) writes.zadd(`hashtag:${tag}:ranked`, score, id);
  if (role === "model") writes.zincrby("models:top:engagement", 3 * step, author);
  replies(await writes.exec());
  return res.json({ id, changed: true, isLiked: on, likesCount });
}

async function changeFollow(req, res, on) {
  const target = req.params.username;
  const name = req.user.username;
  if (target === name) throw new HttpError(422, "Not yourself");
  const reads = redis.pipeline();
  reads.hget(`user:${target}`, "followerCount").hexists(`user:${target}`, "username");
  reads.exists(`user:${name}`).sismember(`user:${name}:following`, target);
  const [followers, known, own, member] = replies(await reads.exec());
  if (!known || !own) throw new HttpError(404, "User not found");
  if (Boolean(member) === on) return res.json({ username: target, changed: false, following: on, followerCount: number(followers) });
  const step = on ? 1 : -1;
  const writes = redis.multi();
  if (on) writes.sadd(`user:${name}:following`, target).sadd(`user:${target}:followers`, name);
  else writes.srem(`user:${name}:following`, target).srem(`user:${target}:followers`, name);
  writes.hincrby(`user:${name}`, "followingCount", step).hincrby(`user:${target}`, "followerCount", step);
  const counts = replies(await writes.exec());
  return res.json({ username: target, changed: true, following: on, followerCount: counts[3] });
}

const app = express();
app.disable("x-powered-by");
if (!TUNED) app.use(pinoHttp(), helmet(), cors());
app.use(express.json({ limit: "1mb" }));

app.post("/posts/:id/like", signedIn, (req, res) => changeLike(req, res, true));
app.delete("/posts/:id/like", signedIn, (req, res) => changeLike(req, res, false));
app.post("/users/:username/follow", signedIn, (req, res) => changeFollow(req, res, true));
app.delete("/users/:username/follow", signedIn, (req, res) => changeFollow(req, res, false));

app.post("/posts", signedIn, async (req, res) => {
  const { content, media_url: mediaUrl } = req.body ?? {};
  if (typeof content !== "string" || content.length === 0 || content.length > 10_000) throw new HttpError(422, "Invalid content");
  const name = req.user.username;
  const [avatar, displayName, role] = await redis.hmget(`user:${name}`, "avatar", "display_name", "role");
  if (role === null) throw new HttpError(404, "User not found");
  const id = crypto.randomUUID();
  const now = Date.now();
  const post = { id, user_id: name, username: name, avatar: avatar ?? "", display_name: displayName ?? "", user_role: role };
  Object.assign(post, { content, created_at: now, likesCount: 0, commentsCount: 0, bookmarksCount: 0 });
  if (mediaUrl) post.media_url = mediaUrl;
  const writes = redis.multi();
  writes.hset(`post:${id}`, post).zadd(`user:${name}:posts`, now, id).hincrby(`user:${name}`, "postCount", 1);
  writes.zadd("explore:feed", now, id);
  for (const tag of tagsOf(content)) writes.zadd(`hashtag:${tag}:posts`, now, id).zadd(`hashtag:${tag}:ranked`, 0, id);
  replies(await writes.exec());
  res.status(201).json(shownPost(post, false, false));
});

app.get("/posts/:id", anyone, async (req, res) => {
  const { id } = req.params;
  const reads = redis.pipeline();
  reads.hgetall(`post:${id}`);
  if (req.user) reads.sismember(`post:${id}:likes`, req.user.username).zscore(`user:${req.user.username}:bookmarked`, id);
  const [post, liked = 0, bookmarked = null] = replies(await reads.exec());
  if (!post.id || post.banned === "true") throw new HttpError(404, "Post not found");
  res.json(shownPost(post, liked === 1, bookmarked !== null));
});

app.get("/users/:username", anyone, async (req, res) => {
  const values = await redis.hmget(`user:${req.params.username}`, ...PUBLIC);
  if (values[0] === null) throw new HttpError(404, "User not found");
  res.json(shownUser(values));
});

app.get("/feed/explore", anyone, sortedFeed(() => "explore:feed"));
app.get("/feed/hashtag/:tag", signedIn, sortedFeed((req) => `hashtag:${req.params.tag.toLowerCase()}:posts`));
app.get("/feed/hashtag/:tag/ranked", signedIn, sortedFeed((req) => `hashtag:${req.params.tag.toLowerCase()}:ranked`));

app.get("/feed/following", signedIn, async (req, res) => {
  const { limit, offset } = page(req);
  const name = req.user.username;
  res.json(
    await cached(req, async () => {
      const home = `tmp:home:${name}`;
      let ids = cache === null ? [] : await redis.zrevrange(home, offset, offset + limit - 1);
      if (ids.length === 0) {
        const followed = await redis.smembers(`user:${name}:following`);
        if (followed.length === 0) return feedPage([], name, { limit, offset });
        const union = redis.pipeline();
        union.zunionstore(home, followed.length, ...followed.map((other) => `user:${other}:posts`));
        union.expire(home, HOME_SECONDS).zrevrange(home, offset, offset + limit - 1);
        ids = replies(await union.exec())[2];
      }
      return feedPage(ids, name, { limit, offset });
    }),
  );
});

app.get("/search/models/top", signedIn, async (req, res) => {
  const { limit } = page(req);
  res.json(
    await cached(req, async () => {
      const pairs = await redis.zrevrange("models:top:engagement", 0, limit - 1, "WITHSCORES");
      const reads = redis.pipeline();
      for (let i = 0; i < pairs.length; i += 2) reads.hmget(`user:${pairs[i]}`, ...PUBLIC);
      const rows = replies(await reads.exec());
      const users = rows.map((values, i) => ({ ...shownUser(values), engagement: number(pairs[2 * i + 1]) }));
      return { users, pagination: { limit, count: users.length } };
    }),
  );
});

// A single command on the caller's own keys.
app.post("/", signedIn, async (req, res) => {
  const [command, key, ...rest] = Array.isArray(req.body) ? req.body : [];
  const name = req.user.username;
  const own = String(key).replace(/^user:(me|AUTH)(?=:|$)/, `user:${name}`);
  if (!READABLE.has(String(command).toUpperCase())) throw new HttpError(400, "ERR command not allowed");
  if (own !== `user:${name}` && !own.startsWith(`user:${name}:`)) throw new HttpError(400, "ERR key not allowed");
  res.json({ result: await redis.call(command, own, ...rest) });
});

app.use((error, req, res, next) => {
  if (res.headersSent) return next(error);
  return res.status(error.status ?? 500).json({ error: error.status ? error.message : "Internal error" });
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
server.keepAliveTimeout = 65_000;
