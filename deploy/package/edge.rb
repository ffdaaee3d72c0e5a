# The formula for Homebrew; build sets the version and the checksums.
class Edge < Formula
  desc "Rate limiter for the edge of a network"
  homepage "https://github.com/edgelimit/edge"
  version "@VERSION@"
  license "Apache-2.0"

  release = "https://github.com/edgelimit/edge/releases/download/v#{version}/edge-#{version}"
  on_macos do
    on_arm do
      url "#{release}-darwin-arm64.tar.gz"
      sha256 "@darwin-arm64@"
    end
    on_intel do
      url "#{release}-darwin-amd64.tar.gz"
      sha256 "@darwin-amd64@"
    end
  end
  on_linux do
    on_arm do
      url "#{release}-linux-arm64.tar.gz"
      sha256 "@linux-arm64@"
    end
    on_intel do
      url "#{release}-linux-amd64.tar.gz"
      sha256 "@linux-amd64@"
    end
  end

  def install
    bin.install "edge"
    man1.install Dir["man/*"]
    bash_completion.install "completions/bash" => "edge"
    zsh_completion.install "completions/zsh" => "_edge"
    fish_completion.install "completions/fish" => "edge.fish"
    doc.install "README.md", "THIRD-PARTY-LICENSES", "docs", "examples", "deploy"
  end

  test do
    assert_match "edge v#{version} ", shell_output("#{bin}/edge version")
    system bin/"edge", "check", doc/"examples/rules.yaml"
  end
end
