// Serves requests with Express, and answers what it and cookie, the parser of cookie-parser, read: node express.js PORT.
// The exit status is 3 if one of them is not installed.
let express, cookie
try {
  express = require('express')
  cookie = require('cookie')
} catch (error) {
  console.error(error)
  process.exit(3)
}

express().get('/', (req, res) => {
  const lines = []
  const add = (kind, value) => {
    if (value === undefined || value === null) return
    if (typeof value === 'object') return Object.values(value).forEach(v => add(kind, v))
    lines.push(kind + ' ' + Buffer.from(value).toString('hex') + '\n')
  }
  add('cookie', cookie.parse(req.headers.cookie || '').user_id)
  add('query', req.query.user_id)
  add('header', req.get('X-User-Id'))
  const basic = /^ *basic +(.*)$/i.exec(req.get('Authorization')) // as basic-auth does, with any base64
  if (basic) add('authorization', Buffer.from(basic[1], 'base64').toString())
  res.type('text').send(lines.join(''))
}).listen(Number(process.argv[2]), '127.0.0.1')
