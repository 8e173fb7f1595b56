// A tour of Plaza with openapi-fetch and the generated types: `node typescript_tour.js URL API_KEY`.
// Prints the operations that it called, one a line.
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [baseUrl, apiKey] = process.argv.slice(2) as [string, string];
const password = "correct horse battery";

// The data of a response. An error ends the tour.
type Outcome<T> = { data?: T; error?: unknown; response: Response };
const ok = <T>({ data, error, response }: Outcome<T>): T => {
  if (error !== undefined || data === undefined) throw new Error(`${response.status} ${response.url} ${JSON.stringify(error)}`);
  return data;
};
const check = (condition: unknown, about: string): void => {
  if (!condition) throw new Error(`not true: ${about}`);
};

const noteOperation: Middleware = {
  onResponse: ({ request, schemaPath, response }) => {
    if (response.ok) console.log(`${request.method}_${schemaPath}`);
  },
};
const clientWith = (headers: Record<string, string>) => {
  const client = createClient<paths>({ baseUrl, headers });
  client.use(noteOperation);
  return client;
};

const anyone = clientWith({});
const admin = clientWith({ "X-API-Key": apiKey });
check(ok(await anyone.GET("/healthz")).status === "ok", "healthy");
check(ok(await anyone.GET("/ping")).message === "pong", "reachable");

// Accounts
ok(await anyone.POST("/auth/register", { body: { username: "ana", password } }));
const signedIn = ok(await anyone.POST("/auth/login", { body: { username: "ana", password } }));
const renewed = ok(await anyone.POST("/auth/refresh", { body: { refresh_token: signedIn.refresh_token } }));
const ana = clientWith({ Authorization: `Bearer ${renewed.access_token}` });
check(ok(await ana.GET("/whoami")).username === "ana", "signed in");

// Posts
const newPost = { body: { content: "Sunset #travel" }, params: { header: { "Idempotency-Key": "first-post" } } };
const post: components["schemas"]["Post"] = ok(await ana.POST("/posts", newPost));
check(ok(await ana.POST("/posts", newPost)).id === post.id, "created once");
const thisPost = { params: { path: { id: post.id } } };
check(ok(await ana.PATCH("/posts/{id}", { ...thisPost, body: { content: "Sunrise #travel" } })).edited_at, "edited");
check(ok(await ana.POST("/posts/{id}/like", thisPost)).likesCount === 1, "liked");
check(ok(await ana.GET("/posts/{id}/likes", thisPost)).users[0]?.username === "ana", "who likes it");
check(ok(await ana.DELETE("/posts/{id}/like", thisPost)).likesCount === 0, "not liked");
check(ok(await ana.POST("/posts/{id}/bookmark", thisPost)).isBookmarked, "bookmarked");
ok(await ana.POST("/posts/{id}/comments", { ...thisPost, body: { content: "Where was this?" } }));
check(ok(await ana.GET("/posts/{id}/comments", thisPost)).comments.length === 1, "commented");
check(ok(await anyone.GET("/posts/{id}", thisPost)).hashtags[0] === "travel", "tagged");
check(ok(await anyone.GET("/feed/explore", { params: { query: { limit: 5 } } })).pagination.limit === 5, "explore");
check(ok(await ana.GET("/feed/following")).pagination.next_cursor === null, "following");
check(ok(await ana.GET("/feed/hashtag/{tag}", { params: { path: { tag: "travel" } } })).posts.length === 1, "hashtag");
const own = ok(await ana.GET("/users/{username}/posts", { params: { path: { username: "ana" } } }));
check(own.posts[0]?.user?.username === "ana", "own posts");
check(ok(await ana.DELETE("/posts/{id}", thisPost)).deleted, "deleted");

// Users
const records = [{ username: "ben", bio: "Gardener." }, { username: "cleo" }];
check(ok(await admin.POST("/sync/users", { body: records })).results.every(({ status }) => status === "created"), "synced");
const ben = { params: { path: { username: "ben" } } };
check(ok(await anyone.GET("/users/{username}", ben)).bio === "Gardener.", "profile");
const me = { params: { path: { username: "me" } } };
check(ok(await ana.PATCH("/users/{username}", { ...me, body: { bio: "Painter.", avatar: null } })).bio === "Painter.", "updated");
check(ok(await ana.POST("/users/{username}/follow", ben)).on, "follows");
check(ok(await anyone.GET("/users/{username}/followers", ben)).users.length === 1, "followers");
check(ok(await ana.POST("/users/{username}/block", { params: { path: { username: "cleo" } } })).kind === "block", "blocks");
check(ok(await admin.PATCH("/users/{username}/role", { ...ben, body: { role: "model" } })).role === "model", "role");
check("social" in ok(await ana.GET("/users/me/export")), "exported");

// Articles
const link = "https://valkey.io/topics/sorted-sets/";
const article = ok(await ana.POST("/articles", { body: { title: "Sorted sets", link, groups: ["python"] } }));
const thisArticle = { params: { path: { id: article.id } } };
check(ok(await ana.PUT("/articles/{id}/vote", { ...thisArticle, body: { direction: "down" } })).votes === -1, "voted");
check(ok(await ana.GET("/articles/{id}", thisArticle)).vote === "down", "own vote");
check(ok(await anyone.GET("/articles", { params: { query: { order: "time" } } })).articles.length === 1, "articles");
check(ok(await anyone.GET("/groups")).groups[0]?.name === "python", "groups");
const group = { params: { path: { name: "python" } } };
check(ok(await anyone.GET("/groups/{name}/articles", group)).articles.length === 1, "articles of a group");

// Challenges
const newChallenge = { title: "Thirty runs", category: 1, is_public: true, duration: 30 };
const challenge = ok(await ana.POST("/challenges", { body: newChallenge }));
const thisChallenge = { params: { path: { id: challenge.id } } };
check(ok(await ana.POST("/challenges/{id}/join", thisChallenge)).member, "joined");
ok(await ana.POST("/challenges/{id}/track", { ...thisChallenge, body: {} }));
ok(await ana.POST("/challenges/{id}/posts", { ...thisChallenge, body: { text: "Five kilometres." } }));
check(ok(await anyone.GET("/challenges/{id}/posts", thisChallenge)).posts[0]?.is_break === false, "posted");

// Live
const launch = { params: { path: { event: "launch" } } };
ok(await admin.PUT("/analytics/events/{event}", { ...launch, body: { title: "Launch" } }));
check(ok(await ana.POST("/analytics/events/{event}/heartbeat", { ...launch, body: { location: "stage" } })).alive, "alive");
check(ok(await admin.GET("/analytics/events/{event}/viewers/active-count", launch)).count === 1, "one viewer");
ok(await admin.GET("/analytics/events/{event}/overview", launch));

// Shop: a browser keeps the session's cookie; here it is sent by hand.
const newItem = { name: "Lamp", description: "Warm light.", price: "19.90", qty: 3 };
const item = ok(await admin.POST("/shop/items", { body: newItem }));
check(ok(await anyone.GET("/shop/items")).items[0]?.price === "19.90", "items");
const started = await anyone.POST("/shop/session");
ok(started);
const guest = clientWith({ Cookie: started.response.headers.get("set-cookie")?.split(";")[0] ?? "" });
const thisItem = { params: { path: { id: item.id } } };
check(ok(await guest.PUT("/shop/cart/items/{id}", { ...thisItem, body: { qty: 2 } })).total === "39.80", "cart");
check(ok(await guest.POST("/shop/checkout")).total === "39.80", "ordered");
check(ok(await guest.GET("/shop/orders")).orders.length === 1, "orders");

// Other services
const hook = ok(await admin.POST("/webhooks", { body: { url: "https://example.org/hook", types: ["post.*"] } }));
check(ok(await admin.GET("/webhooks")).webhooks[0]?.id === hook.id, "webhooks");
const result = ok(await ana.POST("/", { body: ["HGET", "user:me", "bio"] }));
check(!Array.isArray(result) && result.result === "Painter.", "one command");
const results = ok(await ana.POST("/pipeline", { body: [["HGET", "user:me", "bio"], ["FLUSHALL"]] }));
check(results[0]?.result === "Painter." && results[1]?.error, "several commands");

// Errors have a type too.
const { error } = await anyone.GET("/posts/{id}", thisPost);
check(error?.code === "not_found", "a problem");
