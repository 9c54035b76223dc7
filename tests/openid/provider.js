// A provider of OpenID Connect for tests: node provider.js PORT CONSOLE. oidc-provider does the work; this adds the form
// that signs users in, and lets tests set the claims of people. Below /forged is an issuer whose tokens are wrong in the
// way that a test wants.

import http from 'node:http';
import { randomUUID } from 'node:crypto';
import { SignJWT, exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

const [port, site] = process.argv.slice(2);
// Another site than the console's address: browsers treat the two as strangers.
const issuer = `http://localhost:${port}`;
const client = { id: 'shortlink', secret: 'the secret of the client' };

/** The claims of people, by their names here. */
let people = {};

/** The fault of the next token of the forger. */
let fault = '';

const keys = async () => {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
  // Another one after each start, as after a rotation.
  return { kid: randomUUID(), privateKey, publicKey };
};
const own = await keys();
const wrong = await keys();
const jwk = async (key, kid) => ({ ...await exportJWK(key), kid, use: 'sig', alg: 'ES256' });

const provider = new Provider(issuer, {
  clients: [{
    client_id: client.id,
    client_secret: client.secret,
    id_token_signed_response_alg: 'ES256',
    redirect_uris: [`${site}/console/sign-in/callback`],
    post_logout_redirect_uris: [`${site}/console`],
  }],
  jwks: { keys: [await jwk(own.privateKey, own.kid)] },
  cookies: { keys: [randomUUID()] },
  scopes: ['openid', 'profile', 'email'],
  claims: { openid: ['sub', 'groups'], profile: ['name'], email: ['email', 'email_verified'] },
  features: {
    devInteractions: { enabled: false },
    rpInitiatedLogout: {
      enabled: true,
      logoutSource: (ctx, form) => {
        ctx.body = `<!doctype html><title>Sign out</title>${form}`
          + '<button form="op.logoutForm" name="logout" value="yes">Sign out</button>';
      },
    },
  },
  interactions: { url: (ctx, { uid }) => `/interaction/${uid}` },
  pkce: { required: () => true },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
  // The client belongs to the company: no user has to consent.
  loadExistingGrant: async (ctx) => {
    const grant = new ctx.oidc.provider.Grant({
      clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId,
    });
    grant.addOIDCScope('openid profile email');
    await grant.save();
    return grant;
  },
});

const FORM = '<!doctype html><title>Provider</title><form method="post"><input name="login" id="login">'
  + '<button id="enter">Sign in</button></form><a id="cancel" href="?cancel">Cancel</a>';

async function interact(request, response, url) {
  const finish = (result) => provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  if (url.search === '?cancel') return finish({ error: 'access_denied', error_description: 'the user cancelled' });
  if (request.method === 'POST') {
    return finish({ login: { accountId: new URLSearchParams(await body(request)).get('login') } });
  }
  response.setHeader('Content-Type', 'text/html');
  return response.end(FORM);
}

async function body(request) {
  let text = '';
  for await (const part of request) text += part;
  return text;
}

/** The nonces of the forger's codes. */
const nonces = new Map();

async function forge(request, response, url) {
  const json = (value) => {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(value));
  };
  const self = `${issuer}/forged`;
  if (url.pathname.endsWith('/openid-configuration')) {
    return json({
      issuer: self, authorization_endpoint: `${self}/auth`, token_endpoint: `${self}/token`, jwks_uri: `${self}/jwks`,
      response_types_supported: ['code'], subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['ES256', 'none', 'HS256'],
    });
  }
  if (url.pathname.endsWith('/jwks')) {
    return json({ keys: [await jwk(own.publicKey, own.kid)] });
  }
  if (url.pathname.endsWith('/auth')) {
    const code = randomUUID();
    nonces.set(code, url.searchParams.get('nonce'));
    const back = new URL(url.searchParams.get('redirect_uri'));
    back.searchParams.set('code', code);
    back.searchParams.set('state', url.searchParams.get('state'));
    response.writeHead(303, { Location: back.href });
    return response.end();
  }
  const code = new URLSearchParams(await body(request)).get('code');
  const nonce = fault === 'nonce' ? 'another' : nonces.get(code);
  if (!nonces.delete(code)) {
    response.statusCode = 400;
    return json({ error: 'invalid_grant' });
  }
  return json({ access_token: 'x', token_type: 'Bearer', id_token: await token(self, nonce) });
}

/** An identity token with the fault. */
async function token(self, nonce) {
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: fault === 'issuer' ? 'http://localhost:1/' : self,
    aud: fault === 'audience' ? 'another' : client.id,
    sub: 'mallory', name: 'Mallory', email: 'mallory@example.com', groups: ['admins'], nonce,
    iat: fault === 'old' ? now - 3600 : fault === 'future' ? now + 600 : now,
    exp: fault === 'expired' ? now - 120 : now + 600,
  };
  // As some providers write them.
  if (fault === 'texts') Object.assign(claims, { updated_at: '2026-01-01T00:00:00.000Z', email_verified: 'true' });
  if (fault === 'skewed') Object.assign(claims, { iat: now - 30, exp: now - 20 });
  if (fault === 'audiences') claims.aud = [client.id, 'another'];
  if (fault === 'party') claims.azp = 'another';
  if (fault === 'groupless') delete claims.groups;
  if (fault === 'none') {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    return `${part({ alg: 'none' })}.${part(claims)}.`;
  }
  if (fault === 'secret') {
    return new SignJWT(claims).setProtectedHeader({ alg: 'HS256' }).sign(new TextEncoder().encode(client.secret));
  }
  const signer = fault === 'signature' || fault === 'key' ? wrong : own;
  const kid = fault === 'key' ? wrong.kid : own.kid;
  return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid }).sign(signer.privateKey);
}

const work = provider.callback();
http.createServer(async (request, response) => {
  const url = new URL(request.url, issuer);
  try {
    if (url.pathname.startsWith('/interaction/')) await interact(request, response, url);
    else if (url.pathname.startsWith('/forged/')) await forge(request, response, url);
    else if (url.pathname === '/test/people') {
      people = JSON.parse(await body(request));
      response.end('{}');
    } else if (url.pathname === '/test/fault') {
      fault = await body(request);
      response.end('{}');
    } else await work(request, response);
  } catch (error) {
    console.error(error);
    response.statusCode = 500;
    response.end();
  }
}).listen(Number(port), '127.0.0.1');
