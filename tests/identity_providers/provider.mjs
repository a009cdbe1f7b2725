// An OpenID provider of the npm package oidc-provider on a free port. It prints its port, reads one line of JSON with
// the addresses of the gateway, and serves until its input ends. POST /control/disable/<id> disables an account.
import http from 'node:http'
import readline from 'node:readline'
import { Provider } from 'oidc-provider'

const disabled = new Set()
let answer
const server = http.createServer((request, response) => {
  const match = request.url.match(/^\/control\/disable\/(\w+)$/)
  if (match) {
    disabled.add(match[1])
    response.end()
  } else answer(request, response)
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { callback, logout, home } = JSON.parse(line)
  const provider = new Provider(`http://127.0.0.1:${server.address().port}`, {
    clients: [
      {
        client_id: 'gateway',
        client_secret: 'a secret / with+signs',
        redirect_uris: [callback],
        post_logout_redirect_uris: [home],
        grant_types: ['authorization_code', 'refresh_token'],
        backchannel_logout_uri: logout,
        backchannel_logout_session_required: true,
      },
    ],
    claims: { openid: ['sub', 'groups'], email: ['email', 'email_verified'], profile: ['name'] },
    conformIdTokenClaims: false,
    cookies: { keys: ['a key of the tests'] },
    features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true } },
    pkce: { required: () => true },
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    // The gateway of the test is on the loopback, which the package would refuse.
    fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
    findAccount: async (context, id) =>
      disabled.has(id)
        ? undefined
        : {
            accountId: id,
            claims: async () => ({
              sub: id,
              email: `${id}@acme.example`,
              email_verified: true,
              name: id,
              groups: ['engineers'],
            }),
          },
  })
  answer = provider.callback()
  console.log('ready')
}).on('close', () => process.exit(0))
