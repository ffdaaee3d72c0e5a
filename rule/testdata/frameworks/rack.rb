# Serves requests with Rack, and answers what it reads: ruby rack.rb PORT. The exit status is 3 if it is not installed.
begin
  require 'rack'
  require 'rack/handler/webrick'
rescue LoadError => error
  warn error.message
  exit 3
end

def add(lines, kind, value)
  case value
  when nil then nil
  when Hash then value.each_value { |v| add(lines, kind, v) }
  when Array then value.each { |v| add(lines, kind, v) }
  else lines << "#{kind} #{value.unpack1('H*')}\n"
  end
end

app = lambda do |env|
  request = Rack::Request.new(env)
  lines = []
  add(lines, 'cookie', request.cookies['user_id'])
  add(lines, 'query', request.GET['user_id'])
  add(lines, 'header', request.get_header('HTTP_X_USER_ID'))
  auth = Rack::Auth::Basic::Request.new(env)
  add(lines, 'authorization', auth.credentials.join(':')) if auth.provided? && auth.basic?
  [200, { 'Content-Type' => 'text/plain' }, lines]
end
Rack::Handler::WEBrick.run(app, Host: '127.0.0.1', Port: ARGV[0].to_i, AccessLog: [])
