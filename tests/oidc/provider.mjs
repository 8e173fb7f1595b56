// An OpenID provider on loopback: `node provider.mjs PORT CLIENT_ID CLIENT_SECRET REDIRECT_URI`.
// Its development pages accept any login name, which becomes the subject.
import Provider from "oidc-provider";

const [port, client_id, client_secret, redirect_uri] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id, client_secret, redirect_uris: [redirect_uri], token_endpoint_auth_method: "client_secret_basic" }],
  pkce: { required: () => true },
  claims: { openid: ["sub"], profile: ["preferred_username", "name"], email: ["email", "email_verified"] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, name: `${id} of the provider`, email: `${id}@example.org`, email_verified: true }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
